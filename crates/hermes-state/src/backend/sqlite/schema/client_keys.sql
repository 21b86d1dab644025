-- What a caller calls a message by, so that a write that is repeated stores it once. Programs of older releases neither
-- read nor write it, so the version of the schema stays; a file gets it with the first key that is stored in it.

ALTER TABLE messages ADD COLUMN client_key TEXT;
CREATE UNIQUE INDEX idx_messages_client_key ON messages (session_id, client_key) WHERE client_key IS NOT NULL;
