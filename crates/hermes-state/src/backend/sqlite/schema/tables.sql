-- The base tables. Columns stand in the order in which whole rows are handed out.
-- Every statement tolerates what exists: older files and older programs share these names and shapes.

CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS sessions (
    -- who and where
    id                TEXT PRIMARY KEY,
    source            TEXT NOT NULL,
    user_id           TEXT,
    session_key       TEXT,
    chat_id           TEXT,
    chat_type         TEXT,
    thread_id         TEXT,
    display_name      TEXT,
    origin_json       TEXT,
    expiry_finalized  INTEGER DEFAULT 0,
    -- what it runs
    model             TEXT,
    model_config      TEXT,
    system_prompt     TEXT,
    parent_session_id TEXT REFERENCES sessions (id),
    -- its life
    started_at        REAL NOT NULL,
    ended_at          REAL,
    end_reason        TEXT,
    -- counters
    message_count      INTEGER DEFAULT 0,
    tool_call_count    INTEGER DEFAULT 0,
    input_tokens       INTEGER DEFAULT 0,
    output_tokens      INTEGER DEFAULT 0,
    cache_read_tokens  INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens   INTEGER DEFAULT 0,
    -- workspace
    cwd           TEXT,
    git_branch    TEXT,
    git_repo_root TEXT,
    -- billing
    billing_provider   TEXT,
    billing_base_url   TEXT,
    billing_mode       TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd    REAL,
    cost_status        TEXT,
    cost_source        TEXT,
    pricing_version    TEXT,
    -- the rest, in the order in which releases added it
    title            TEXT,
    api_call_count   INTEGER DEFAULT 0,
    handoff_state    TEXT,
    handoff_platform TEXT,
    handoff_error    TEXT,
    compression_failure_cooldown_until REAL,
    compression_failure_error          TEXT,
    compression_fallback_streak        INTEGER NOT NULL DEFAULT 0,
    profile_name     TEXT,
    rewind_count     INTEGER NOT NULL DEFAULT 0,
    archived         INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS messages (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id            TEXT NOT NULL REFERENCES sessions (id),
    role                  TEXT NOT NULL,
    content               TEXT,
    tool_call_id          TEXT,
    tool_calls            TEXT,
    tool_name             TEXT,
    effect_disposition    TEXT,
    timestamp             REAL NOT NULL,
    token_count           INTEGER,
    finish_reason         TEXT,
    reasoning             TEXT,
    reasoning_content     TEXT,
    reasoning_details     TEXT,
    codex_reasoning_items TEXT,
    codex_message_items   TEXT,
    platform_message_id   TEXT,
    observed              INTEGER DEFAULT 0,
    active                INTEGER NOT NULL DEFAULT 1,
    compacted             INTEGER NOT NULL DEFAULT 0,
    api_content           TEXT
);

CREATE TABLE IF NOT EXISTS session_model_usage (
    session_id         TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    model              TEXT NOT NULL,
    billing_provider   TEXT NOT NULL DEFAULT '',
    billing_base_url   TEXT NOT NULL DEFAULT '',
    billing_mode       TEXT NOT NULL DEFAULT '',
    task               TEXT NOT NULL DEFAULT '',
    api_call_count     INTEGER NOT NULL DEFAULT 0,
    input_tokens       INTEGER NOT NULL DEFAULT 0,
    output_tokens      INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd    REAL NOT NULL DEFAULT 0,
    cost_status        TEXT,
    cost_source        TEXT,
    first_seen         REAL,
    last_seen          REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
);

CREATE TABLE IF NOT EXISTS state_meta (
    key   TEXT PRIMARY KEY,
    value TEXT
);

CREATE TABLE IF NOT EXISTS gateway_routing (
    scope       TEXT NOT NULL DEFAULT '',
    session_key TEXT NOT NULL,
    entry_json  TEXT NOT NULL,
    updated_at  REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
);

CREATE TABLE IF NOT EXISTS compression_locks (
    session_id  TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at  REAL NOT NULL
);

-- Only the shape is kept here; another component works on the rows.
CREATE TABLE IF NOT EXISTS async_delegations (
    delegation_id        TEXT PRIMARY KEY,
    origin_session       TEXT NOT NULL,
    origin_ui_session_id TEXT NOT NULL DEFAULT '',
    parent_session_id    TEXT,
    state                TEXT NOT NULL,
    dispatched_at        REAL NOT NULL,
    completed_at         REAL,
    updated_at           REAL NOT NULL,
    event_json           TEXT,
    result_json          TEXT,
    delivery_state       TEXT NOT NULL DEFAULT 'pending',
    delivery_attempts    INTEGER NOT NULL DEFAULT 0,
    delivered_at         REAL,
    owner_pid            INTEGER,
    owner_started_at     INTEGER,
    task_json            TEXT,
    delivery_claim       TEXT,
    delivery_claimed_at  REAL
);
