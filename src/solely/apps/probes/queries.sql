-- Every statement of the prober, by name.

-- name: settle
-- Applies one result per target, all in one statement: the state, and how many in a row succeeded or failed. One that
-- the guard refused is neither. A result
-- whose fence is not greater than the latest changes nothing, and is not returned.
INSERT INTO probes_states
    (target, fence, state, before, since, failures, successes, failure_threshold, success_threshold, at, passed, error,
    status, seconds, certificate_expires, announced)
SELECT target, fence,
    CASE WHEN refused = 1 THEN 'REFUSED' WHEN passed = 1 AND success_threshold <= 1 THEN 'UP' WHEN passed = 0 AND failure_threshold <= 1 THEN 'DOWN'
        ELSE 'PENDING' END,
    'PENDING', at, CASE WHEN passed = 1 OR refused = 1 THEN 0 ELSE 1 END, passed, failure_threshold, success_threshold, at, passed, error, status, seconds,
    certificate_expires, ''
FROM ({given}) AS given WHERE true
ON CONFLICT (target) DO UPDATE SET
    fence = excluded.fence,
    state = {next_state},
    before = probes_states.state,
    since = CASE WHEN {next_state} = probes_states.state THEN probes_states.since ELSE excluded.at END,
    failures = CASE WHEN excluded.passed = 1 OR excluded.state = 'REFUSED' THEN 0 ELSE probes_states.failures + 1 END,
    successes = CASE WHEN excluded.passed = 1 THEN probes_states.successes + 1 ELSE 0 END,
    failure_threshold = excluded.failure_threshold,
    success_threshold = excluded.success_threshold,
    at = excluded.at,
    passed = excluded.passed,
    error = excluded.error,
    status = excluded.status,
    seconds = excluded.seconds,
    certificate_expires = excluded.certificate_expires
WHERE excluded.fence > probes_states.fence
RETURNING target, state, before, announced, error

-- name: next_state
CASE
    WHEN excluded.state = 'REFUSED' THEN 'REFUSED'
    WHEN excluded.passed = 1 AND probes_states.successes + 1 >= excluded.success_threshold THEN 'UP'
    WHEN excluded.passed = 1 AND probes_states.state = 'REFUSED' THEN 'PENDING'
    WHEN excluded.passed = 1 THEN probes_states.state
    WHEN probes_states.failures + 1 >= excluded.failure_threshold OR probes_states.state = 'DOWN' THEN 'DOWN'
    ELSE 'PENDING'
END

-- name: given (sqlite)
SELECT json_extract(value, '$.target') AS target, json_extract(value, '$.fence') AS fence,
    json_extract(value, '$.at') AS at, json_extract(value, '$.due') AS due,
    json_extract(value, '$.phases') AS phases, json_extract(value, '$.passed') AS passed,
    json_extract(value, '$.refused') AS refused, json_extract(value, '$.error') AS error, json_extract(value, '$.status') AS status,
    json_extract(value, '$.seconds') AS seconds,
    json_extract(value, '$.certificate_expires') AS certificate_expires,
    json_extract(value, '$.failure_threshold') AS failure_threshold,
    json_extract(value, '$.success_threshold') AS success_threshold
FROM json_each(:given)

-- name: given (postgresql)
SELECT * FROM json_to_recordset(CAST(:given AS json)) AS rows
    (target TEXT, fence BIGINT, at DOUBLE PRECISION, due DOUBLE PRECISION, phases TEXT, passed INTEGER, refused INTEGER, error TEXT, status INTEGER,
    seconds DOUBLE PRECISION, certificate_expires DOUBLE PRECISION, failure_threshold BIGINT, success_threshold BIGINT)

-- name: record
-- Returns the targets whose result was not recorded before.
INSERT INTO probes_results (target, fence, at, due, passed, error, status, seconds, phases)
SELECT target, fence, at, due, passed, error, status, seconds, phases FROM ({given}) AS given WHERE true
ON CONFLICT (target, fence) DO NOTHING
RETURNING target

-- name: add_sums
INSERT INTO probes_sums (target, span, begins, up, down, seconds, slowest)
VALUES (:target, :span, :begins, :up, :down, :seconds, :slowest)
ON CONFLICT (target, span, begins) DO UPDATE SET
    up = probes_sums.up + excluded.up,
    down = probes_sums.down + excluded.down,
    seconds = probes_sums.seconds + excluded.seconds,
    slowest = CASE WHEN excluded.slowest > probes_sums.slowest THEN excluded.slowest ELSE probes_sums.slowest END

-- name: unannounced
SELECT target, state, before, announced, error FROM probes_states
WHERE at < :before
    AND ((state = 'DOWN' AND announced <> 'DOWN') OR (state <> 'DOWN' AND announced IN ('DOWN', 'ANNOUNCING')))
ORDER BY target LIMIT :limit

-- name: announced
UPDATE probes_states SET announced = :state WHERE target = :target

-- name: states
SELECT * FROM probes_states

-- name: restart
UPDATE probes_states SET state = 'PENDING', before = state, failures = 0, successes = 0, since = :at
WHERE target = :target

-- name: forget_state
DELETE FROM probes_states WHERE target = :target

-- name: results
SELECT * FROM probes_results WHERE target = :target AND fence < :fence ORDER BY fence DESC LIMIT :limit

-- name: bars
SELECT target, fence, at, due, passed, error, status, seconds, phases FROM
    (SELECT probes_results.*, ROW_NUMBER() OVER (PARTITION BY target ORDER BY fence DESC) AS place
     FROM probes_results WHERE target IN ({named}) AND at >= :since) AS placed
WHERE place <= :limit ORDER BY target, fence

-- name: named (sqlite)
SELECT value FROM json_each(:names)

-- name: named (postgresql)
SELECT json_array_elements_text(CAST(:names AS json))

-- name: sums
SELECT target, SUM(up) AS up, SUM(down) AS down, SUM(seconds) AS seconds, MAX(slowest) AS slowest FROM probes_sums
WHERE span = :span AND begins >= :since GROUP BY target

-- name: sums_of
SELECT begins, up, down, seconds, slowest FROM probes_sums
WHERE target = :target AND span = :span AND begins >= :since ORDER BY begins

-- name: forget_results
DELETE FROM probes_results WHERE (target, fence) IN
    (SELECT target, fence FROM probes_results WHERE at < :before ORDER BY at LIMIT :page)

-- name: forget_sums
DELETE FROM probes_sums WHERE (target, span, begins) IN
    (SELECT target, span, begins FROM probes_sums WHERE span = :span AND begins < :before LIMIT :page)

-- name: targets
SELECT * FROM probes_targets ORDER BY name

-- name: add_target
INSERT INTO probes_targets (name, definition, made, made_by) VALUES (:name, :definition, :made, :made_by)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, made = excluded.made, made_by = excluded.made_by

-- name: remove_target
DELETE FROM probes_targets WHERE name = :name

-- name: pauses
SELECT * FROM probes_pauses

-- name: pause
INSERT INTO probes_pauses (target, at, made_by, reason) VALUES (:target, :at, :made_by, :reason)
ON CONFLICT (target) DO NOTHING

-- name: resume
DELETE FROM probes_pauses WHERE target = :target

-- name: maintenance
SELECT * FROM probes_maintenance WHERE ends > :now ORDER BY starts, id

-- name: add_maintenance
INSERT INTO probes_maintenance (id, targets, starts, ends, made, made_by, reason)
VALUES (:id, :targets, :starts, :ends, :made, :made_by, :reason)

-- name: end_maintenance
UPDATE probes_maintenance SET ends = :now WHERE id = :id AND ends > :now
