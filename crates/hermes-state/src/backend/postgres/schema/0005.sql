-- Version 5: who has a lease of compression_locks, beyond its name: the process, and the lease's number among those on its
-- session. A row belongs to the lease with its holder and acquired_at, and to no other; it outlives it, so that numbers
-- only rise.

CREATE TABLE hermes_state_leases (
    session_id  text COLLATE "C" PRIMARY KEY,
    holder      text COLLATE "C" NOT NULL,
    acquired_at double precision NOT NULL,
    fence       bigint NOT NULL,
    host        text COLLATE "C",
    pid         bigint,
    started     bigint
);
