-- The steps of work, each one statement. A run belongs to whoever has its `lease_owner`; while it is EXECUTING,
-- `available_at` is the end of its lease, so that one index finds all that can be taken: what is due, and what was left.

-- name: clock (sqlite)
-- It counts milliseconds, rounded up here: what was written a moment ago is due.
COALESCE(CAST(:now AS DOUBLE PRECISION), (julianday('now') - 2440587.5) * 86400.0 + 0.001)

-- name: clock (postgresql)
COALESCE(CAST(:now AS DOUBLE PRECISION), CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION))

-- name: tasks (sqlite)
json_each(:tasks) AS given

-- name: tasks (postgresql)
jsonb_array_elements_text(CAST(:tasks AS jsonb)) AS given (value)

-- name: can_be_taken
environment = :environment AND state IN ('QUEUED', 'DELAYED', 'EXECUTING')

-- name: first_task
-- The task whose run has been due longest: one look into the index for each, however many runs other tasks have.
SELECT given.value FROM {tasks} ORDER BY COALESCE((
    SELECT MIN(available_at) FROM triggers_runs WHERE {can_be_taken} AND task = given.value
), 1e18) LIMIT 1

-- name: unlocked (sqlite)
/* it has one writer at a time */

-- name: unlocked (postgresql)
FOR UPDATE SKIP LOCKED

-- name: take
-- A run that has no attempt left fails instead, since its last worker died: the caller then takes the next one.
WITH clock AS MATERIALIZED (SELECT {clock} AS now)
UPDATE triggers_runs SET
    state = CASE WHEN attempts < max_attempts THEN 'EXECUTING' ELSE 'FAILED' END,
    attempts = CASE WHEN attempts < max_attempts THEN attempts + 1 ELSE attempts END,
    lease_owner = CASE WHEN attempts < max_attempts THEN :token ELSE NULL END,
    lease_until = CASE WHEN attempts < max_attempts THEN (SELECT now FROM clock) + :lease ELSE NULL END,
    available_at = CASE WHEN attempts < max_attempts THEN (SELECT now FROM clock) + :lease ELSE available_at END,
    worker = CASE WHEN attempts < max_attempts THEN :worker ELSE worker END,
    started_at = COALESCE(started_at, (SELECT now FROM clock)),
    finished_at = CASE WHEN attempts < max_attempts THEN NULL ELSE (SELECT now FROM clock) END,
    error = CASE WHEN attempts < max_attempts THEN error ELSE :lost END,
    key_expires_at = CASE WHEN attempts >= max_attempts AND frees_key = 1 THEN (SELECT now FROM clock)
        ELSE key_expires_at END,
    updated_at = (SELECT now FROM clock)
WHERE id = (
    SELECT id FROM triggers_runs
    WHERE {can_be_taken} AND task = ({first_task}) AND available_at <= (SELECT now FROM clock)
    ORDER BY available_at, id LIMIT 1 {unlocked}
)
RETURNING *, CAST(:lease AS DOUBLE PRECISION) AS left_seconds

-- name: taken_with
-- The run that a take with this token has leased, if its response was lost.
SELECT * FROM triggers_runs WHERE lease_owner = :token AND state = 'EXECUTING' AND environment = :environment

-- name: renew
-- Never shortens a lease. One that expired is renewed too if no other worker has taken the run.
UPDATE triggers_runs SET
    lease_until = CASE WHEN lease_until > {clock} + :lease THEN lease_until ELSE {clock} + :lease END,
    available_at = CASE WHEN lease_until > {clock} + :lease THEN lease_until ELSE {clock} + :lease END
WHERE id = :id AND lease_owner = :token AND state = 'EXECUTING' AND environment = :environment
RETURNING id, lease_until - {clock} AS left_seconds

-- name: complete
UPDATE triggers_runs SET state = 'COMPLETED', output = :output, error = NULL, lease_until = NULL,
    finished_at = {clock}, updated_at = {clock}
WHERE id = :id AND lease_owner = :token AND state = 'EXECUTING' AND environment = :environment
RETURNING *

-- name: fail
-- The pause doubles from `first` with each attempt, up to `most`, unless the caller gives one.
UPDATE triggers_runs SET
    state = CASE WHEN :retry = 1 AND attempts < max_attempts THEN 'DELAYED' ELSE 'FAILED' END,
    available_at = {clock} + COALESCE(CAST(:delay AS DOUBLE PRECISION), :spread * CASE
        WHEN attempts > 20 OR :first * (1 << (attempts - 1)) > :most THEN CAST(:most AS DOUBLE PRECISION)
        ELSE :first * (1 << (attempts - 1)) END),
    finished_at = CASE WHEN :retry = 1 AND attempts < max_attempts THEN NULL ELSE {clock} END,
    key_expires_at = CASE WHEN frees_key = 1 AND NOT (:retry = 1 AND attempts < max_attempts) THEN {clock}
        ELSE key_expires_at END,
    error = :error, lease_until = NULL, updated_at = {clock}
WHERE id = :id AND lease_owner = :token AND state = 'EXECUTING' AND environment = :environment
RETURNING *

-- name: release
UPDATE triggers_runs SET state = CASE WHEN :delay > 0 THEN 'DELAYED' ELSE 'QUEUED' END, attempts = attempts - 1,
    available_at = {clock} + :delay, lease_until = NULL, updated_at = {clock}
WHERE id = :id AND lease_owner = :token AND state = 'EXECUTING' AND environment = :environment
RETURNING *

-- name: child
-- The run that another one is to wait for, locked, so that it ends before or after that one begins to wait.
SELECT id, state FROM triggers_runs WHERE id = :child AND environment = :environment {locked}

-- name: locked (sqlite)
/* a transaction of SQLite is the only writer */

-- name: locked (postgresql)
FOR UPDATE

-- name: wait
-- The lease ends, and the attempt does not count. A child that has ended already is not waited for.
UPDATE triggers_runs SET state = CASE WHEN :ended = 1 THEN 'QUEUED' ELSE 'WAITING' END, attempts = attempts - 1,
    waits_for = CASE WHEN :ended = 1 THEN NULL ELSE :child END,
    available_at = {clock}, lease_until = NULL, updated_at = {clock}
WHERE id = :id AND lease_owner = :token AND state = 'EXECUTING' AND environment = :environment
RETURNING *

-- name: run
SELECT * FROM triggers_runs WHERE id = :id AND environment = :environment

-- name: add_event
INSERT INTO triggers_events (run_id, at, kind, detail) VALUES (:id, {clock}, :kind, :detail)

-- name: open_attempts
-- Each attempt is taken once and has one end: 1 if the last one has none.
SELECT COALESCE(SUM(CASE WHEN kind = 'taken' THEN 1 ELSE -1 END), 0) AS open FROM triggers_events
WHERE run_id = :id AND kind IN ('taken', 'retried', 'released', 'waiting', 'lost')

-- name: due
-- What a waiting take looks for, without a write.
WITH clock AS MATERIALIZED (SELECT {clock} AS now)
SELECT 1 AS found FROM {tasks} WHERE EXISTS (
    SELECT 1 FROM triggers_runs WHERE {can_be_taken} AND task = given.value AND available_at <= (SELECT now FROM clock)
) LIMIT 1
