-- Version 2: the tables of Telegram topics. A file gets them when they are first asked for, a server has them.

CREATE TABLE telegram_dm_topic_mode (
    chat_id      text COLLATE "C" PRIMARY KEY,
    user_id      text COLLATE "C" NOT NULL,
    enabled      bigint NOT NULL DEFAULT 1,
    activated_at double precision NOT NULL,
    updated_at   double precision NOT NULL,
    has_topics_enabled            bigint,
    allows_users_to_create_topics bigint,
    capability_checked_at         double precision,
    intro_message_id  text COLLATE "C",
    pinned_message_id text COLLATE "C"
);

CREATE TABLE telegram_dm_topic_bindings (
    chat_id      text COLLATE "C" NOT NULL,
    thread_id    text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    session_key  text COLLATE "C" NOT NULL,
    session_id   text COLLATE "C" NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    managed_mode text COLLATE "C" NOT NULL DEFAULT 'auto',
    linked_at    double precision NOT NULL,
    updated_at   double precision NOT NULL,
    PRIMARY KEY (chat_id, thread_id)
);

CREATE UNIQUE INDEX idx_telegram_dm_topic_bindings_session ON telegram_dm_topic_bindings (session_id);
CREATE INDEX idx_telegram_dm_topic_bindings_user ON telegram_dm_topic_bindings (user_id, chat_id);
