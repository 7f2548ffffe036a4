-- waits_for: the child run that a WAITING run waits for; the end of the child makes it QUEUED in the same transaction.
ALTER TABLE triggers_runs ADD COLUMN waits_for TEXT;
CREATE INDEX triggers_runs_waiting ON triggers_runs (waits_for) WHERE state = 'WAITING';

-- Batches: what their items became. runs is NULL until all items were accepted; idempotency_key is that of the batch.
CREATE TABLE triggers_batches (
    id TEXT NOT NULL PRIMARY KEY,
    environment TEXT NOT NULL,
    idempotency_key TEXT,
    run_count INTEGER NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    runs TEXT,
    UNIQUE (environment, idempotency_key)
);
CREATE INDEX triggers_batches_by_time ON triggers_batches (created_at);
