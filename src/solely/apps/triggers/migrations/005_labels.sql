-- What lists are filtered by, each in the order of lists: the tags, the queue and the machine of a run, as labels such as
-- "tag:urgent"; its task and its state.
CREATE TABLE triggers_labels (
    environment TEXT NOT NULL,
    label TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (environment, label, at, run_id)
);
CREATE INDEX triggers_labels_by_run ON triggers_labels (run_id);
CREATE INDEX triggers_runs_by_task ON triggers_runs (environment, task, created_at, id);
CREATE INDEX triggers_runs_by_state_and_time ON triggers_runs (environment, state, created_at, id);

-- The tags of runs that are there already.
-- only: sqlite
INSERT INTO triggers_labels (environment, label, at, run_id)
SELECT DISTINCT runs.environment, 'tag:' || had.value, runs.created_at, runs.id
FROM triggers_runs AS runs, json_each(runs.tags) AS had;

-- only: postgresql
INSERT INTO triggers_labels (environment, label, at, run_id)
SELECT DISTINCT runs.environment, 'tag:' || had.value, runs.created_at, runs.id
FROM triggers_runs AS runs, jsonb_array_elements_text(runs.tags::jsonb) AS had (value);
