-- The tables of Telegram topics, and their indexes. Shared with older releases, as the base is.

CREATE TABLE IF NOT EXISTS telegram_dm_topic_mode (
    chat_id      TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL,
    enabled      INTEGER NOT NULL DEFAULT 1,
    activated_at REAL NOT NULL,
    updated_at   REAL NOT NULL,
    has_topics_enabled            INTEGER,
    allows_users_to_create_topics INTEGER,
    capability_checked_at         REAL,
    intro_message_id  TEXT,
    pinned_message_id TEXT
);

CREATE TABLE IF NOT EXISTS telegram_dm_topic_bindings (
    chat_id      TEXT NOT NULL,
    thread_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    session_key  TEXT NOT NULL,
    session_id   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    managed_mode TEXT NOT NULL DEFAULT 'auto',
    linked_at    REAL NOT NULL,
    updated_at   REAL NOT NULL,
    PRIMARY KEY (chat_id, thread_id)
);

CREATE UNIQUE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_session ON telegram_dm_topic_bindings (session_id);
CREATE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_user ON telegram_dm_topic_bindings (user_id, chat_id);
