-- What happened to keys, through any worker of the service. `times` counts what a row stands for: repeated renewals and
-- refusals are one row, the last of them at `last`. `grade` is 0 for what went wrong, 1 for the usual, 2 for samples: each has room of its own.
CREATE TABLE service_events (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    id TEXT NOT NULL,
    event TEXT NOT NULL,
    fence BIGINT NOT NULL,
    who TEXT NOT NULL,
    facts TEXT NOT NULL,
    times BIGINT NOT NULL,
    last DOUBLE PRECISION NOT NULL,
    grade INTEGER NOT NULL,
    PRIMARY KEY (kind, name, at, id)
);
CREATE INDEX service_events_at ON service_events (grade, at, id);

-- Who waits for which key in which worker, as of `seen`.
CREATE TABLE service_waiters (
    worker TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    who TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    seen DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (worker, number)
);
CREATE INDEX service_waiters_name ON service_waiters (kind, name);
