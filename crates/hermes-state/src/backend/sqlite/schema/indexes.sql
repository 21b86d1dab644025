
-- The base indexes.

CREATE INDEX IF NOT EXISTS idx_sessions_source ON sessions (source);
CREATE INDEX IF NOT EXISTS idx_sessions_source_id ON sessions (source, id);
CREATE INDEX IF NOT EXISTS idx_sessions_parent ON sessions (parent_session_id);
CREATE INDEX IF NOT EXISTS idx_sessions_started ON sessions (started_at DESC);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages (session_id, timestamp);
CREATE INDEX IF NOT EXISTS idx_compression_locks_expires ON compression_locks (expires_at);
CREATE INDEX IF NOT EXISTS idx_session_model_usage_session ON session_model_usage (session_id);
CREATE INDEX IF NOT EXISTS idx_session_model_usage_model ON session_model_usage (model);
CREATE INDEX IF NOT EXISTS idx_async_delegations_delivery ON async_delegations (delivery_state, completed_at);
