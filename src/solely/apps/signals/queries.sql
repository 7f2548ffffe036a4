-- The seconds of UTC on the clock of the database.
-- name: now (sqlite)
((julianday('now') - 2440587.5) * 86400.0)
-- name: now (postgresql)
CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)

-- name: write
INSERT INTO signals_signals VALUES
(:id, :house, :game, :username, :priority, {now} + :place * 0.000001, :signal, 0, NULL) ON CONFLICT (id) DO NOTHING

-- name: in_group
acknowledged IS NULL
AND (CAST(:house AS TEXT) = '' OR house = :house) AND (CAST(:game AS TEXT) = '' OR game = :game)

-- name: waiting
SELECT * FROM signals_signals WHERE {in_group} ORDER BY priority DESC, at, id LIMIT :limit

-- Leases the next signal that nobody has; consumers that come at the same time get different ones.
-- name: take (sqlite)
UPDATE signals_signals SET leased_until = {now} + :lease WHERE id = (
    SELECT id FROM signals_signals WHERE {in_group} AND leased_until <= {now} ORDER BY priority DESC, at, id LIMIT 1
) RETURNING *
-- name: take (postgresql)
UPDATE signals_signals SET leased_until = {now} + :lease WHERE id = (
    SELECT id FROM signals_signals WHERE {in_group} AND leased_until <= {now} ORDER BY priority DESC, at, id LIMIT 1
    FOR UPDATE SKIP LOCKED
) RETURNING *

-- name: acknowledge
UPDATE signals_signals SET acknowledged = {now} WHERE id = :id AND acknowledged IS NULL

-- name: count_waiting
SELECT house, game, count(*) AS waiting FROM signals_signals WHERE acknowledged IS NULL GROUP BY house, game

-- Only what a consumer has processed is ever deleted.
-- name: forget
DELETE FROM signals_signals WHERE id IN (
    SELECT id FROM signals_signals WHERE acknowledged < :before LIMIT :page
)

-- name: count
INSERT INTO signals_minutes VALUES (
    :minute, :house, :game, :generated, :deduplicated, :acquired, :contended, :dead_lettered, :seconds, :last
) ON CONFLICT (minute, house, game) DO UPDATE SET
    generated = signals_minutes.generated + excluded.generated,
    deduplicated = signals_minutes.deduplicated + excluded.deduplicated,
    acquired = signals_minutes.acquired + excluded.acquired,
    contended = signals_minutes.contended + excluded.contended,
    dead_lettered = signals_minutes.dead_lettered + excluded.dead_lettered,
    seconds = signals_minutes.seconds + excluded.seconds,
    last = excluded.last

-- name: forget_minutes
DELETE FROM signals_minutes WHERE (minute, house, game) IN (
    SELECT minute, house, game FROM signals_minutes WHERE last < :before LIMIT :page
)

-- name: groups
SELECT house, game, sum(generated) AS generated, sum(deduplicated) AS deduplicated, sum(acquired) AS acquired,
    sum(contended) AS contended, sum(dead_lettered) AS dead_lettered, sum(seconds) AS seconds, max(last) AS last
FROM signals_minutes WHERE minute >= :since GROUP BY house, game ORDER BY max(last) DESC, house, game LIMIT :limit

-- name: contention
SELECT coalesce(sum(acquired), 0) AS acquired, coalesce(sum(contended), 0) AS contended
FROM signals_minutes WHERE minute >= :since
