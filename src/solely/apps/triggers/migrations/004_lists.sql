-- Lists by key, which name no task; and what is deleted when it is old.
CREATE INDEX triggers_runs_by_key ON triggers_runs (environment, idempotency_key, created_at, id);
CREATE INDEX triggers_runs_by_end ON triggers_runs (finished_at);
