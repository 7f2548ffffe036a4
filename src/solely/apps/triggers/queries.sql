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

-- Lists: `older` has the runs that follow on a place, the newest first; `newer` those that precede it, the oldest first.
-- The caller has moved the place into the span of time, so that one other bound ends the walk along the index: with two
-- on the same column, SQLite takes another index, or sorts. An empty filter matches all.

-- name: older
SELECT {listed} FROM triggers_runs AS runs WHERE {is_older} AND {chosen} {newest_first}

-- name: newer
SELECT {listed} FROM triggers_runs AS runs WHERE {is_newer} AND {chosen} {oldest_first}

-- name: older_of_key
SELECT {listed} FROM triggers_runs AS runs WHERE runs.idempotency_key = :value AND {is_older} AND {chosen} {newest_first}

-- name: newer_of_key
SELECT {listed} FROM triggers_runs AS runs WHERE runs.idempotency_key = :value AND {is_newer} AND {chosen} {oldest_first}

-- name: older_of_task
SELECT {listed} FROM triggers_runs AS runs WHERE runs.task = :value AND {is_older} AND {chosen} {newest_first}

-- name: newer_of_task
SELECT {listed} FROM triggers_runs AS runs WHERE runs.task = :value AND {is_newer} AND {chosen} {oldest_first}

-- name: older_of_state
SELECT {listed} FROM triggers_runs AS runs WHERE runs.state = :value AND {is_older} AND {chosen} {newest_first}

-- name: newer_of_state
SELECT {listed} FROM triggers_runs AS runs WHERE runs.state = :value AND {is_newer} AND {chosen} {oldest_first}

-- name: older_of_label
SELECT {listed} FROM {labeled} AND (labels.at, labels.run_id) < (:at, :id) AND labels.at >= :since AND {chosen}
ORDER BY labels.at DESC, labels.run_id DESC LIMIT :limit

-- name: newer_of_label
SELECT {listed} FROM {labeled} AND (labels.at, labels.run_id) > (:at, :id) AND labels.at <= :until AND {chosen}
ORDER BY labels.at, labels.run_id LIMIT :limit

-- name: labeled
triggers_labels AS labels CROSS JOIN triggers_runs AS runs WHERE labels.environment = :environment
    AND labels.label = :value AND runs.id = labels.run_id

-- name: is_older
(runs.created_at, runs.id) < (:at, :id) AND runs.created_at >= :since

-- name: is_newer
(runs.created_at, runs.id) > (:at, :id) AND runs.created_at <= :until

-- name: newest_first
ORDER BY runs.created_at DESC, runs.id DESC LIMIT :limit

-- name: oldest_first
ORDER BY runs.created_at, runs.id LIMIT :limit

-- name: listed
-- Payloads and outputs are not read: they may have some MiB each.
    runs.id, runs.environment, runs.task, runs.idempotency_key, runs.key_expires_at, runs.tags, runs.metadata,
    runs.options, runs.state, runs.created_at, runs.updated_at, runs.available_at, runs.attempts, runs.max_attempts,
    runs.lease_owner, runs.lease_until, runs.worker, runs.started_at, runs.finished_at, runs.error, runs.parent_id,
    runs.replay_of, runs.buffered_at, runs.duplicate_of, runs.changes, runs.frees_key, runs.waits_for

-- name: chosen
    runs.environment = :environment AND runs.duplicate_of IS NULL
    AND (:key = '' OR runs.idempotency_key = :key)
    AND (:tasks = '[]' OR runs.task IN ({tasks})) AND (:states = '[]' OR runs.state IN ({states}))
    AND (:tags = '[]' OR EXISTS ({label_of_run} ({tags})))
    AND (:queues = '[]' OR EXISTS ({label_of_run} ({queues})))
    AND (:machines = '[]' OR EXISTS ({label_of_run} ({machines})))

-- name: label_of_run
SELECT 1 FROM triggers_labels AS had WHERE had.environment = runs.environment AND had.at = runs.created_at
    AND had.run_id = runs.id AND had.label IN

-- name: add_labels
INSERT INTO triggers_labels (environment, label, at, run_id) SELECT {given_labels} ON CONFLICT DO NOTHING

-- name: given_labels (sqlite)
    value ->> '$.environment', value ->> '$.label', value ->> '$.at', value ->> '$.run_id'
FROM json_each(:rows) WHERE true

-- name: given_labels (postgresql)
    environment, label, at, run_id FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given (
    environment TEXT, label TEXT, at DOUBLE PRECISION, run_id TEXT)

-- name: forget_labels
DELETE FROM triggers_labels WHERE run_id IN ({ids})

-- name: tasks (sqlite)
SELECT value FROM json_each(:tasks)

-- name: tasks (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:tasks AS jsonb)) AS given (value)

-- name: states (sqlite)
SELECT value FROM json_each(:states)

-- name: states (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:states AS jsonb)) AS given (value)

-- name: tags (sqlite)
SELECT value FROM json_each(:tags)

-- name: tags (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:tags AS jsonb)) AS given (value)

-- name: queues (sqlite)
SELECT value FROM json_each(:queues)

-- name: queues (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:queues AS jsonb)) AS given (value)

-- name: machines (sqlite)
SELECT value FROM json_each(:machines)

-- name: machines (postgresql)
SELECT value FROM jsonb_array_elements_text(CAST(:machines AS jsonb)) AS given (value)

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
INSERT INTO triggers_events (run_id, at, kind, detail)
VALUES (:run_id, COALESCE(CAST(:at AS DOUBLE PRECISION), {now}), :kind, :detail)

-- name: events_of
-- Moments of SQLite have milliseconds: of two in one, an attempt begins before it ends.
SELECT at, kind, detail FROM triggers_events WHERE run_id = :run_id
ORDER BY at, CASE kind WHEN 'triggered' THEN 0 WHEN 'taken' THEN 1 ELSE 2 END, kind LIMIT :limit

-- name: forget
DELETE FROM triggers_runs WHERE id IN (SELECT id FROM triggers_runs
    WHERE finished_at < :before AND (idempotency_key IS NULL OR key_expires_at <= {now}) LIMIT :page) RETURNING id

-- name: forget_events
DELETE FROM triggers_events WHERE run_id IN ({ids})

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

-- name: add_upload
-- Nothing if the environment has too many bytes of them. Of those that arrive at once, each counts the others or not.
INSERT INTO triggers_uploads (environment, owner, name, at, size, kind, content)
SELECT CAST(:environment AS TEXT), CAST(:owner AS TEXT), CAST(:name AS TEXT), {now}, CAST(:size AS INTEGER),
    CAST(:kind AS TEXT), CAST(:content AS TEXT)
WHERE CAST(:size AS INTEGER) + (SELECT COALESCE(SUM(size), 0) FROM triggers_uploads
    WHERE environment = :environment) <= :most
ON CONFLICT (environment, owner, name) DO UPDATE
SET at = excluded.at, size = excluded.size, kind = excluded.kind, content = excluded.content

-- name: upload
SELECT content, kind, size FROM triggers_uploads
WHERE environment = :environment AND owner = :owner AND name = :name AND at > {now} - :life

-- name: forget_uploads
DELETE FROM triggers_uploads WHERE at <= {now} - :life

-- name: version
-- What changes whenever the run does, without its payload and output.
SELECT updated_at, attempts, state FROM triggers_runs WHERE id = :id AND environment = :environment
