-- Version 3: what a caller calls a message by, so that a write that is repeated stores it once.

ALTER TABLE messages ADD COLUMN client_key text COLLATE "C";
CREATE UNIQUE INDEX idx_messages_client_key ON messages (session_id, client_key) WHERE client_key IS NOT NULL;
