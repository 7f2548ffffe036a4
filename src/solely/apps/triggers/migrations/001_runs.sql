-- The runs of the task-trigger API, and what happened to them. Moments are seconds of UTC; JSON is text.

-- The constraint on (environment, task, idempotency_key) is the last arbiter of "same key, same run". An expired or
-- reset key (key_expires_at) stays until a new run of the same key is inserted, which frees it in the same transaction.
-- changes: how many changes that were made while the run was buffered have been applied. duplicate_of: the run that has
-- the key; such a row only resolves an id that was answered while the claims were unreachable, and never runs.
-- frees_key: 1 if a run that fails gives its key up.
CREATE TABLE triggers_runs (
    id TEXT NOT NULL PRIMARY KEY,
    environment TEXT NOT NULL,
    task TEXT NOT NULL,
    idempotency_key TEXT,
    key_expires_at DOUBLE PRECISION,
    payload TEXT NOT NULL,
    payload_digest TEXT NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    available_at DOUBLE PRECISION NOT NULL,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    lease_owner TEXT,
    lease_until DOUBLE PRECISION,
    worker TEXT NOT NULL,
    started_at DOUBLE PRECISION,
    finished_at DOUBLE PRECISION,
    output TEXT,
    error TEXT,
    parent_id TEXT,
    replay_of TEXT,
    buffered_at DOUBLE PRECISION,
    duplicate_of TEXT,
    changes INTEGER NOT NULL,
    frees_key INTEGER NOT NULL,
    UNIQUE (environment, task, idempotency_key)
);

-- Lists, the newest first; and the runs that are due, the oldest first.
CREATE INDEX triggers_runs_by_time ON triggers_runs (environment, created_at, id);
CREATE INDEX triggers_runs_by_state ON triggers_runs (environment, state, available_at);

-- The timeline of a run, beside the moments in its row.
CREATE TABLE triggers_events (
    run_id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE INDEX triggers_events_by_run ON triggers_events (run_id, at);
