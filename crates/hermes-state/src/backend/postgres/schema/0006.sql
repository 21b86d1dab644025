-- Version 6: which spooled writes are stored, so that a replay that is repeated stores none of them twice.

CREATE TABLE hermes_state_spooled (
    ticket     text COLLATE "C" PRIMARY KEY,
    stored_at  double precision NOT NULL
);
