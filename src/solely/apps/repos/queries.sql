-- Every statement of the application, by name.

-- name: record_received
INSERT INTO repos_received (key, origin, outcome, forge, kind, project, title, first, last, times)
VALUES (:key, :origin, :outcome, :forge, :kind, :project, :title, :first, :last, :times)
ON CONFLICT (key, origin, outcome) DO UPDATE SET
    times = repos_received.times + excluded.times,
    last = CASE WHEN excluded.last > repos_received.last THEN excluded.last ELSE repos_received.last END

-- name: forget_received
DELETE FROM repos_received WHERE (key, origin, outcome) IN
    (SELECT key, origin, outcome FROM repos_received WHERE last < :before LIMIT :page)

-- name: received
SELECT * FROM repos_received WHERE last < :last ORDER BY last DESC, key DESC LIMIT :limit

-- name: record_job
INSERT INTO repos_jobs (id, key, kind, forge, repository, project, subject, title, author, received_by, received, state,
    attempts, worker, since, started, commit_id, url, error, log, job)
VALUES (:id, :key, :kind, :forge, :repository, :project, :subject, :title, :author, :received_by, :received, :state,
    :attempts, :worker, :since, :started, :commit_id, :url, :error, :log, :job)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, attempts = excluded.attempts, worker = excluded.worker, since = excluded.since,
    started = excluded.started, error = excluded.error, job = excluded.job, repository = excluded.repository,
    commit_id = CASE WHEN excluded.commit_id = '' THEN repos_jobs.commit_id ELSE excluded.commit_id END,
    url = CASE WHEN excluded.url = '' THEN repos_jobs.url ELSE excluded.url END,
    log = CASE WHEN excluded.log = '' THEN repos_jobs.log ELSE excluded.log END
WHERE excluded.since >= repos_jobs.since

-- name: forget_jobs
DELETE FROM repos_jobs WHERE id IN (SELECT id FROM repos_jobs WHERE since < :before LIMIT :page)

-- name: job_columns
id, key, kind, forge, repository, project, subject, title, author, received_by, received, state, attempts, worker, since,
    started, commit_id, url, error

-- name: recent_jobs
SELECT {job_columns} FROM repos_jobs
WHERE (since < :since OR (since = :since AND id < :id))
    AND (CAST(:state AS TEXT) = '' OR state = :state) AND (CAST(:kind AS TEXT) = '' OR kind = :kind)
    AND (CAST(:project AS TEXT) = '' OR project = :project)
ORDER BY since DESC, id DESC LIMIT :limit

-- name: find_job
SELECT {job_columns}, log, job FROM repos_jobs WHERE id = :id

-- name: unfinished_jobs
SELECT {job_columns}, log, job FROM repos_jobs
WHERE state IN ('waiting', 'running', 'retried', 'postponed') ORDER BY since, id LIMIT :limit

-- name: fail_job
UPDATE repos_jobs SET state = 'failed', error = :error
WHERE id = :id AND since = :since AND state IN ('waiting', 'running', 'retried', 'postponed')

-- name: latest_job
SELECT {job_columns}, log, job FROM repos_jobs WHERE key = :key ORDER BY since DESC LIMIT 1

-- name: duplicates
SELECT * FROM repos_received
WHERE outcome <> 'queued' AND (last < :last OR (last = :last AND key < :key))
ORDER BY last DESC, key DESC LIMIT :limit
