-- What became of each run of a job: one row, as its last step wrote it.
CREATE TABLE repos_jobs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    forge TEXT NOT NULL,
    repository TEXT NOT NULL,
    project TEXT NOT NULL,
    subject TEXT NOT NULL,
    title TEXT NOT NULL,
    author TEXT NOT NULL,
    received_by TEXT NOT NULL,
    received DOUBLE PRECISION NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    worker TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    started DOUBLE PRECISION NOT NULL,
    commit_id TEXT NOT NULL,
    url TEXT NOT NULL,
    error TEXT NOT NULL,
    log TEXT NOT NULL,
    job TEXT NOT NULL
);

-- Newest first, and for the deletion of old rows.
CREATE INDEX repos_jobs_by_time ON repos_jobs (since, id);

-- Runs that have not ended.
CREATE INDEX repos_jobs_unfinished ON repos_jobs (since, id)
    WHERE state IN ('waiting', 'running', 'retried', 'postponed');
