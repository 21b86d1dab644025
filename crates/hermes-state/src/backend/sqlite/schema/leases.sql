-- Who has a lease of compression_locks, beyond its name: the process, and the lease's number among those on its session. A
-- row belongs to the lease with its holder and acquired_at, and to no other. It outlives the lease, so that numbers only
-- rise. Older releases neither read nor write it; a file gets the table with its first lease.

CREATE TABLE IF NOT EXISTS hermes_state_leases (
    session_id  TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    fence       INTEGER NOT NULL,
    host        TEXT,
    pid         INTEGER,
    started     INTEGER
);
