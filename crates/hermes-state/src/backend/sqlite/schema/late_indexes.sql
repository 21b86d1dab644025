-- Indexes over columns that older files lack: callers build old files from the base script, which must not have them.

CREATE INDEX IF NOT EXISTS idx_messages_platform_msg_id
    ON messages (session_id, platform_message_id) WHERE platform_message_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_messages_session_active ON messages (session_id, active, timestamp);
CREATE INDEX IF NOT EXISTS idx_messages_active_null ON messages (active) WHERE active IS NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_session_key ON sessions (session_key, started_at DESC);
CREATE INDEX IF NOT EXISTS idx_sessions_gateway_peer
    ON sessions (source, user_id, chat_id, chat_type, thread_id, started_at DESC);
CREATE INDEX IF NOT EXISTS idx_sessions_handoff_state ON sessions (handoff_state, started_at);
CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions (title) WHERE title IS NOT NULL;
