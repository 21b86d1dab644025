-- Which spooled writes are stored, so that a replay that is repeated stores none of them twice. Rows have numbers, by which
-- a repair finds those between two damaged pages.
CREATE TABLE IF NOT EXISTS hermes_state_spooled (
    ticket    TEXT PRIMARY KEY,
    stored_at REAL NOT NULL
);
