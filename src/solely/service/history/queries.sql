-- Every statement of the history, by name.

-- name: record
INSERT INTO service_events (kind, name, at, id, event, fence, who, facts, times, last, grade)
VALUES (:kind, :name, :at, :id, :event, :fence, :who, :facts, :times, :last, :grade)
ON CONFLICT (kind, name, at, id) DO UPDATE SET times = excluded.times, last = excluded.last, facts = excluded.facts

-- name: of_key
SELECT kind, name, at, id, event, fence, who, facts, times, last FROM service_events
WHERE kind = :kind AND name = :name AND (at, id) < (:at, :id) ORDER BY at DESC, id DESC LIMIT :limit

-- name: of_name
-- The kinds are listed, so that the primary key finds the rows.
SELECT kind, name, at, id, event, fence, who, facts, times, last FROM service_events
WHERE kind IN ('lock', 'claim', 'reservation', 'mark', 'limit', 'item', 'tick', 'watermark', 'breaker')
    AND name = :name AND (at, id) < (:at, :id)
ORDER BY at DESC, id DESC LIMIT :limit

-- name: of_kind
SELECT kind, name, at, id, event, fence, who, facts, times, last FROM service_events
WHERE kind = :kind AND (at, id) < (:at, :id) ORDER BY at DESC, id DESC LIMIT :limit

-- name: of_all
SELECT kind, name, at, id, event, fence, who, facts, times, last FROM service_events
WHERE (at, id) < (:at, :id) ORDER BY at DESC, id DESC LIMIT :limit

-- name: oldest_kept
-- The time of the first row beyond the newest :most ones.
SELECT at FROM service_events WHERE grade = :grade ORDER BY at DESC, id DESC LIMIT 1 OFFSET :most

-- name: forget
DELETE FROM service_events WHERE (kind, name, at, id) IN (
    SELECT kind, name, at, id FROM service_events WHERE grade IN (0, 1, 2) AND at < :before LIMIT :page
)

-- name: forget_usual
DELETE FROM service_events WHERE (kind, name, at, id) IN (
    SELECT kind, name, at, id FROM service_events WHERE grade = 1 AND at <= :before LIMIT :page
)

-- name: forget_notable
DELETE FROM service_events WHERE (kind, name, at, id) IN (
    SELECT kind, name, at, id FROM service_events WHERE grade = 0 AND at <= :before LIMIT :page
)

-- name: forget_samples
DELETE FROM service_events WHERE (kind, name, at, id) IN (
    SELECT kind, name, at, id FROM service_events WHERE grade = 2 AND at <= :before LIMIT :page
)

-- name: waits
INSERT INTO service_waiters (worker, number, kind, name, who, since, seen)
VALUES (:worker, :number, :kind, :name, :who, :since, :seen)
ON CONFLICT (worker, number) DO UPDATE SET seen = excluded.seen

-- name: no_longer_waits
DELETE FROM service_waiters WHERE (worker = :worker AND seen < :seen) OR seen < :stale

-- name: waiting
SELECT who, since FROM service_waiters WHERE kind = :kind AND name = :name AND seen >= :fresh ORDER BY since LIMIT :limit
