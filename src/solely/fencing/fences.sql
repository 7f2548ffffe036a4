-- The fence of each resource, in the caller's own database. One text for PostgreSQL and SQLite: both take $1, $2.

-- name: create
CREATE TABLE IF NOT EXISTS solely_fences (resource text PRIMARY KEY, fence bigint NOT NULL)

-- name: create_alone
-- PostgreSQL only: two CREATE TABLE IF NOT EXISTS at once can both find nothing, and one of them then fails.
SELECT pg_advisory_xact_lock(hashtextextended('solely_fences', 0))

-- name: advance
-- $1 resource, $2 the fence offered → a row if it was not smaller. The row stays locked until the transaction ends,
-- also when it is refused; a concurrent one waits here, and then compares with what was committed.
INSERT INTO solely_fences AS kept (resource, fence) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE kept.fence <= excluded.fence
RETURNING fence

-- name: stored
-- $1 resource → its fence
SELECT fence FROM solely_fences WHERE resource = $1
