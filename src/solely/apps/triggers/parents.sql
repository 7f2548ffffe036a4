-- Resumes the runs that wait for a child. Whoever ends the child does it in the same transaction.

-- name: clock (sqlite)
COALESCE(CAST(:now AS DOUBLE PRECISION), (julianday('now') - 2440587.5) * 86400.0)

-- name: clock (postgresql)
COALESCE(CAST(:now AS DOUBLE PRECISION), CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION))

-- name: resume
UPDATE triggers_runs SET state = 'QUEUED', waits_for = NULL, available_at = {clock}, updated_at = {clock}
WHERE waits_for = :child AND state = 'WAITING'
RETURNING id

-- name: add_event
INSERT INTO triggers_events (run_id, at, kind, detail) VALUES (:id, {clock}, 'resumed', :child)
