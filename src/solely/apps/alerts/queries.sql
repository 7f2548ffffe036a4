-- Every statement of the alert receiver, by name. A statement that ends in `_of` is about one fingerprint,
-- which has an index; its twin is about all.

-- name: record
-- A later record of the same notification adds its publishers' results. The outcome `published` is final.
INSERT INTO alerts_history
    (id, at, notified, outcome, fingerprint, severity, status, name, source, labels, annotations, results, seconds,
    trace, group_name)
VALUES (:id, :at, :notified, :outcome, :fingerprint, :severity, :status, :name, :source, :labels, :annotations,
    :results, :seconds, :trace, :group_name)
ON CONFLICT (id) DO UPDATE SET
    notified = COALESCE(alerts_history.notified, excluded.notified),
    seconds = COALESCE(alerts_history.seconds, excluded.seconds),
    outcome = CASE WHEN excluded.outcome = 'published' OR alerts_history.outcome = 'queued'
        THEN excluded.outcome ELSE alerts_history.outcome END,
    results = {merged_results}

-- name: merged_results (sqlite)
json_patch(alerts_history.results, excluded.results)

-- name: merged_results (postgresql)
(alerts_history.results::jsonb || excluded.results::jsonb)::text

-- name: suppress
INSERT INTO alerts_suppressed (fingerprint, severity, reason, hour, count, last, name, source, labels, group_name)
VALUES (:fingerprint, :severity, :reason, :hour, :times, :last, :name, :source, :labels, :group_name)
ON CONFLICT (fingerprint, severity, reason, hour) DO UPDATE SET
    count = alerts_suppressed.count + excluded.count,
    last = CASE WHEN excluded.last > alerts_suppressed.last THEN excluded.last ELSE alerts_suppressed.last END

-- name: forget_notifications
DELETE FROM alerts_history WHERE id IN (SELECT id FROM alerts_history WHERE at < :before ORDER BY at LIMIT :page)

-- name: forget_suppressed
DELETE FROM alerts_suppressed WHERE (fingerprint, severity, reason, hour) IN
    (SELECT fingerprint, severity, reason, hour FROM alerts_suppressed WHERE hour < :before ORDER BY hour LIMIT :page)

-- name: recent
SELECT * FROM alerts_history
WHERE (at, id) < (:at, :id) AND at >= :since AND (severity = :severity OR :severity = '')
ORDER BY at DESC, id DESC LIMIT :limit

-- name: recent_of
SELECT * FROM alerts_history
WHERE fingerprint = :fingerprint AND (at, id) < (:at, :id) AND at >= :since
    AND (severity = :severity OR :severity = '')
ORDER BY at DESC, id DESC LIMIT :limit

-- name: last_notified
SELECT MAX(notified) AS notified FROM alerts_history WHERE fingerprint = :fingerprint

-- name: notified_since
SELECT COUNT(*) AS count FROM alerts_history
WHERE severity = :severity AND status = 'firing' AND at >= :since AND notified IS NOT NULL

-- name: notified_since_of
SELECT COUNT(*) AS count FROM alerts_history
WHERE fingerprint = :fingerprint AND severity = :severity AND status = 'firing' AND at >= :since
    AND notified IS NOT NULL

-- name: samples
-- The last alert of each severity, sent or suppressed: what silences are matched with.
SELECT name, severity, source, labels, fingerprint, group_name AS "group", at AS seen FROM
    (SELECT * FROM alerts_history WHERE fingerprint = :fingerprint ORDER BY at DESC LIMIT :limit) AS sent
UNION ALL
SELECT name, severity, source, labels, fingerprint, group_name AS "group", last AS seen FROM
    (SELECT * FROM alerts_suppressed WHERE fingerprint = :fingerprint ORDER BY hour DESC LIMIT :limit) AS suppressed
ORDER BY seen DESC

-- name: suppressed_counts
SELECT reason, CAST(SUM(count) AS BIGINT) AS count, MAX(last) AS last FROM alerts_suppressed
WHERE hour >= :hour GROUP BY reason ORDER BY count DESC, reason

-- name: suppressed_counts_of
SELECT reason, CAST(SUM(count) AS BIGINT) AS count, MAX(last) AS last FROM alerts_suppressed
WHERE fingerprint = :fingerprint AND hour >= :hour GROUP BY reason ORDER BY count DESC, reason

-- name: suppressed_of_these
SELECT fingerprint, severity, CAST(SUM(count) AS BIGINT) AS count FROM alerts_suppressed
WHERE hour >= :hour AND fingerprint IN ({these}) GROUP BY fingerprint, severity

-- name: these (sqlite)
SELECT value FROM json_each(:fingerprints)

-- name: these (postgresql)
SELECT value FROM jsonb_array_elements_text(:fingerprints::jsonb) AS given (value)

-- name: most_suppressed
SELECT fingerprint, severity, MAX(name) AS name, CAST(SUM(count) AS BIGINT) AS count, MAX(last) AS last
FROM alerts_suppressed WHERE hour >= :hour
GROUP BY fingerprint, severity ORDER BY count DESC, fingerprint, severity LIMIT :limit

-- name: add_silence
INSERT INTO alerts_silences (id, matchers, starts, ends, made, made_by, reason, ended_by, ended_why)
VALUES (:id, :matchers, :starts, :ends, :made, :made_by, :reason, '', '')

-- name: edit_silence
-- One that has begun keeps its start: what it suppressed is counted.
UPDATE alerts_silences SET matchers = :matchers, ends = :ends, made_by = :made_by, reason = :reason,
    starts = CASE WHEN starts <= :now THEN starts ELSE :starts END
WHERE id = :id AND ends > :now

-- name: end_silence
UPDATE alerts_silences SET ends = :now, ended_by = :ended_by, ended_why = :ended_why WHERE id = :id AND ends > :now

-- name: silence
SELECT * FROM alerts_silences WHERE id = :id

-- name: silences
SELECT * FROM alerts_silences WHERE ends > :now ORDER BY ends, id LIMIT :limit

-- name: ended_silences
SELECT * FROM alerts_silences WHERE ends <= :now ORDER BY ends DESC, id LIMIT :limit

-- name: forget_silences
DELETE FROM alerts_silences WHERE ends < :before
