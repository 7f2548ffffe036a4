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
