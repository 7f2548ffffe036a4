-- Every statement of the task-trigger API, by name.

-- name: now (sqlite)
((julianday('now') - 2440587.5) * 86400.0)

-- name: now (postgresql)
EXTRACT(EPOCH FROM clock_timestamp())::double precision

-- name: columns
    id, environment, task, idempotency_key, key_expires_at, payload, payload_digest, tags, metadata, options, state,
    created_at, updated_at, available_at, attempts, max_attempts, lease_owner, lease_until, worker, started_at,
    finished_at, output, error, parent_id, replay_of, buffered_at, duplicate_of, changes, frees_key

-- name: insert
-- Inserts the runs that conflict with nothing: not with their own row, and not with another run of their key.
INSERT INTO triggers_runs ({columns})
SELECT {given} ON CONFLICT DO NOTHING RETURNING id

-- name: given (sqlite)
    value ->> '$.id', value ->> '$.environment', value ->> '$.task', value ->> '$.idempotency_key',
    value ->> '$.key_expires_at', value ->> '$.payload', value ->> '$.payload_digest', value ->> '$.tags',
    value ->> '$.metadata', value ->> '$.options', value ->> '$.state', value ->> '$.created_at',
    value ->> '$.updated_at', value ->> '$.available_at', value ->> '$.attempts', value ->> '$.max_attempts',
    value ->> '$.lease_owner', value ->> '$.lease_until', value ->> '$.worker', value ->> '$.started_at',
    value ->> '$.finished_at', value ->> '$.output', value ->> '$.error', value ->> '$.parent_id',
    value ->> '$.replay_of', value ->> '$.buffered_at', value ->> '$.duplicate_of', value ->> '$.changes',
    value ->> '$.frees_key'
FROM json_each(:rows) WHERE true

-- name: given (postgresql)
{columns} FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given (
    id TEXT, environment TEXT, task TEXT, idempotency_key TEXT, key_expires_at DOUBLE PRECISION, payload TEXT,
    payload_digest TEXT, tags TEXT, metadata TEXT, options TEXT, state TEXT, created_at DOUBLE PRECISION,
    updated_at DOUBLE PRECISION, available_at DOUBLE PRECISION, attempts INTEGER, max_attempts INTEGER,
    lease_owner TEXT, lease_until DOUBLE PRECISION, worker TEXT, started_at DOUBLE PRECISION,
    finished_at DOUBLE PRECISION, output TEXT, error TEXT, parent_id TEXT, replay_of TEXT,
    buffered_at DOUBLE PRECISION, duplicate_of TEXT, changes INTEGER, frees_key INTEGER)

-- name: free_key
-- Frees the key of a run that no longer protects it, so that a new run can have it.
UPDATE triggers_runs SET idempotency_key = NULL
WHERE environment = :environment AND task = :task AND idempotency_key = :key AND key_expires_at <= {now}

-- name: expire_key
-- A reset: from now on the key protects nothing. The next run of the key frees it.
UPDATE triggers_runs SET key_expires_at = {now}
WHERE environment = :environment AND task = :task AND idempotency_key = :key AND key_expires_at > {now}

-- name: by_keys
-- The runs that have these keys, each by one look into the index. live: 1 if the key still protects the run.
SELECT asked.number, id, payload_digest, CASE WHEN key_expires_at > {now} THEN 1 ELSE 0 END AS live
FROM {asked}

-- name: of_key
runs.environment = asked.environment AND runs.task = asked.task AND runs.idempotency_key = asked.key

-- name: asked (sqlite)
(SELECT value ->> '$.number' AS number, value ->> '$.environment' AS environment, value ->> '$.task' AS task,
    value ->> '$.key' AS key FROM json_each(:keys)) AS asked CROSS JOIN triggers_runs AS runs ON {of_key}

-- name: asked (postgresql)
-- Of a plain join, the planner may read the whole table: it takes the function for a hundred rows, whatever it has.
jsonb_to_recordset(CAST(:keys AS jsonb)) AS asked (number INTEGER, environment TEXT, task TEXT, key TEXT)
    CROSS JOIN LATERAL (SELECT id, payload_digest, key_expires_at FROM triggers_runs AS runs WHERE {of_key} LIMIT 1) AS had

-- name: by_id
SELECT *, CASE WHEN key_expires_at > {now} THEN 1 ELSE 0 END AS live
FROM triggers_runs WHERE id = :id AND environment = :environment

-- name: by_id_for_update (sqlite)
-- A transaction of SQLite is the only writer.
{by_id}

-- name: by_id_for_update (postgresql)
{by_id} FOR UPDATE

-- name: recent
-- The newest first. An empty filter matches all; tags: a run that has one of these.
SELECT * FROM triggers_runs
WHERE environment = :environment AND (created_at, id) < (:at, :id) AND created_at >= :since AND created_at <= :until
    AND duplicate_of IS NULL
    AND (task IN ({tasks}) OR :tasks = '[]') AND (state IN ({states}) OR :states = '[]')
    AND (idempotency_key = :key OR :key = '') AND (:tags = '[]' OR EXISTS ({common_tags}))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: tasks (sqlite)
SELECT value FROM json_each(:tasks)

-- name: tasks (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:tasks AS jsonb)) AS given (value)

-- name: states (sqlite)
SELECT value FROM json_each(:states)

-- name: states (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:states AS jsonb)) AS given (value)

-- name: common_tags (sqlite)
SELECT 1 FROM json_each(triggers_runs.tags) AS had JOIN json_each(:tags) AS wanted ON had.value = wanted.value

-- name: common_tags (postgresql)
SELECT 1 FROM jsonb_array_elements_text(triggers_runs.tags::jsonb) AS had (value)
    JOIN jsonb_array_elements_text(CAST(:tags AS jsonb)) AS wanted (value) ON had.value = wanted.value

-- name: change
-- What people and callers change of a run; the caller has locked the row.
UPDATE triggers_runs SET tags = :tags, metadata = :metadata, state = :state, finished_at = :finished_at,
    lease_owner = :lease_owner, lease_until = :lease_until, key_expires_at = :key_expires_at,
    updated_at = :updated_at
WHERE id = :id

-- name: count_changes
-- How many changes that were made while the run was buffered have been applied.
UPDATE triggers_runs SET changes = :changes WHERE id = :id AND changes < :changes

-- name: add_event
INSERT INTO triggers_events (run_id, at, kind, detail) VALUES (:run_id, {now}, :kind, :detail)

-- name: events_of
SELECT at, kind, detail FROM triggers_events WHERE run_id = :run_id ORDER BY at, kind LIMIT :limit

-- name: forget
DELETE FROM triggers_runs WHERE id IN (SELECT id FROM triggers_runs
    WHERE finished_at < :before AND (idempotency_key IS NULL OR key_expires_at <= {now}) LIMIT :page)

-- name: forget_events
DELETE FROM triggers_events WHERE run_id NOT IN (SELECT id FROM triggers_runs)

-- name: forget_batches
DELETE FROM triggers_batches WHERE created_at < :before

-- name: add_batch
INSERT INTO triggers_batches (id, environment, idempotency_key, run_count, created_at, updated_at)
VALUES (:id, :environment, :key, :run_count, {now}, {now}) ON CONFLICT DO NOTHING RETURNING *

-- name: batch
SELECT * FROM triggers_batches WHERE id = :id AND environment = :environment

-- name: batch_of_key
SELECT * FROM triggers_batches WHERE environment = :environment AND idempotency_key = :key

-- name: seal_batch
UPDATE triggers_batches SET runs = :runs, updated_at = {now} WHERE id = :id AND runs IS NULL

-- name: ended_of
-- How many of these runs have ended.
SELECT COUNT(*) AS ended FROM triggers_runs WHERE finished_at IS NOT NULL AND id IN ({ids})

-- name: ids (sqlite)
SELECT value FROM json_each(:ids)

-- name: ids (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:ids AS jsonb)) AS given (value)
