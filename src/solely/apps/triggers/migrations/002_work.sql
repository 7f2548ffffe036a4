-- What a take looks for: all that can be taken, by task and in the order of time; and what a token has leased.
CREATE INDEX triggers_runs_due ON triggers_runs (environment, task, available_at, id)
    WHERE state IN ('QUEUED', 'DELAYED', 'EXECUTING');
CREATE INDEX triggers_runs_leased ON triggers_runs (lease_owner) WHERE state = 'EXECUTING';
