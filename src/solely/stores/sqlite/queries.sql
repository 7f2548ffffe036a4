-- Every statement of the SQLite store, by name. next_fence() is answered by the session that runs the statement, once
-- the write lock is held; it is NULL where fences must be reserved first, and then nothing is inserted.
-- A comment names the N-th parameter ?N.

-- name: take_absent
-- An Acquire of a key that has no row. Changes nothing if there is one: then the long way decides.
-- ?1 key, ?2 owner, ?3 until, ?4 delay, ?5 fingerprint, ?6 info, ?7 fence, or NULL to request it → rowcount 1 if granted
INSERT OR IGNORE INTO solely_entries (key, state, owner, until, delay, attempts, fingerprint, info, fence)
VALUES (?, 1, ?, ?, ?, 1, ?, ?, coalesce(?, next_fence()))

-- name: mark_absent
-- A Mark of a key that has no row. ?1 key, ?2 owner, ?3 until, ?4 fence, or NULL to request it → rowcount 1 if first
INSERT OR IGNORE INTO solely_entries (key, state, owner, until, fence)
VALUES (?, 2, ?, ?, coalesce(?, next_fence()))

-- name: release_clean
-- A Release of a live hold that nobody waits for and of which nothing need be remembered.
-- ?1 key, ?2 owner, ?3 the latest lease time at which this may happen, ?4 fence, 0: any → rowcount 1 if released
DELETE FROM solely_entries
WHERE key = ? AND owner = ? AND state = 1 AND until > ? AND ? IN (0, fence) AND lines IS NULL AND value IS NULL

-- name: read
SELECT state, owner, fence, until, delay, opens, attempts, kept, refused, fingerprint, info, lines, value
FROM solely_entries WHERE key = ?

-- name: write
INSERT OR REPLACE INTO solely_entries
    (key, queue, available,
     state, owner, fence, until, delay, opens, attempts, kept, refused, fingerprint, info, lines, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete
DELETE FROM solely_entries WHERE key = ?

-- name: page
-- ?1 first key, ?2 the key before it, ?3 at most
SELECT key, state, owner, fence, until, delay, opens, attempts, kept, refused, fingerprint, info, lines, value
FROM solely_entries WHERE key >= ? AND key > ? ORDER BY key LIMIT ?

-- name: item_of_owner
-- ?1 queue, ?2 owner, ?3 lease now → key
SELECT key FROM solely_entries INDEXED BY solely_items_by_owner
WHERE queue = ? AND queue IS NOT NULL AND owner = ? AND state = 1 AND until > ? LIMIT 1

-- name: item_that_waits
-- ?1 queue, ?2 lease now → key
SELECT key FROM solely_entries INDEXED BY solely_items_by_wait
WHERE queue = ? AND queue IS NOT NULL AND available <= ? ORDER BY available, fence LIMIT 1

-- name: next_item
-- ?1 queue → when the next item becomes available, or NULL
SELECT min(available) FROM solely_entries INDEXED BY solely_items_by_wait WHERE queue = ? AND queue IS NOT NULL

-- name: count_items
-- ?1 queue → items
SELECT count(*) FROM solely_entries INDEXED BY solely_items_by_wait WHERE queue = ? AND queue IS NOT NULL

-- name: forget_hits
-- ?1 key, ?2 the latest moment that is out of the window
DELETE FROM solely_hits WHERE key = ? AND at <= ?

-- name: count_hits
-- ?1 owner, ?2 key → hits, whether the owner's is among them
SELECT count(*), coalesce(sum(owner = ?), 0) FROM solely_hits WHERE key = ?

-- name: hit
-- ?1 key, ?2 owner, ?3 at, ?4 until
INSERT INTO solely_hits (key, owner, at, until) VALUES (?, ?, ?, ?)

-- name: hit_that_frees
-- ?1 key, ?2 how many older ones there are → at
SELECT at FROM solely_hits WHERE key = ? ORDER BY at LIMIT 1 OFFSET ?

-- name: unhit
-- A hit whose window is over is none any more, whether it was swept or not. ?1 key, ?2 owner, ?3 wall now → rowcount
DELETE FROM solely_hits WHERE key = ? AND owner = ? AND until > ?

-- name: sweep_end
-- ?1 the last key looked at, ?2 how many to skip → the last key to look at
SELECT key FROM solely_entries WHERE key > ? ORDER BY key LIMIT 1 OFFSET ?

-- name: sweep_look
-- What may have become useless. ?1 after this key, ?2 to this one or NULL: to the end (a blob is above every text),
-- ?3 lease now, ?4 the same less what is remembered, ?5 wall now → rows
SELECT key, state, owner, fence, until, delay, opens, attempts, kept, refused, fingerprint, info, lines, value
FROM solely_entries
WHERE key > ? AND key <= coalesce(?, x'') AND queue IS NULL AND CASE state
    WHEN 0 THEN max(opens, kept) <= ?
    WHEN 1 THEN until + delay <= ?
    ELSE until > 0 AND until <= ?
END

-- name: oldest_hit
-- The greatest integer if there is none.
SELECT coalesce(min(until), 9223372036854775807) FROM solely_hits

-- name: sweep_hits
-- ?1 the latest end that is swept, ?2 at most
DELETE FROM solely_hits
WHERE (key, owner) IN (SELECT key, owner FROM solely_hits WHERE until <= ? ORDER BY until LIMIT ?)

-- name: is_there
-- One row if the file has our tables.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'solely_meta'

-- name: has_any
-- One row if the file has any table.
SELECT 1 FROM sqlite_master LIMIT 1

-- name: version
SELECT version FROM solely_meta

-- name: meta
SELECT boot_id, base, fence, latest FROM solely_meta

-- name: born
SELECT born, voided FROM solely_meta

-- name: first_boot
-- ?1 schema version, ?2 boot id, ?3 base, ?4 born, ?5 the same
INSERT INTO solely_meta (id, version, boot_id, base, born, voided, fence, latest) VALUES (1, ?, ?, ?, ?, ?, 0, 0)

-- name: next_boot
-- ?1 boot id, ?2 base, ?3 the first fence of this boot
UPDATE solely_meta SET boot_id = ?, base = ?, voided = ?

-- name: reserve_fences
UPDATE solely_meta SET fence = max(fence, ?)

-- name: keep_latest
UPDATE solely_meta SET latest = max(latest, ?)

-- name: void_free
-- After a reboot: nobody waits, nothing is offered, delayed or remembered.
DELETE FROM solely_entries WHERE state = 0 AND queue IS NULL

-- name: void_held
-- After a reboot every hold counts as expired at once; its attempts still count.
UPDATE solely_entries SET until = 0, delay = 0, lines = NULL WHERE state = 1 AND queue IS NULL

-- name: void_done
UPDATE solely_entries SET lines = NULL WHERE state = 2 AND lines IS NOT NULL

-- name: last_item
SELECT max(available) FROM solely_entries WHERE queue IS NOT NULL

-- name: void_items
-- After a reboot all items may be taken, in the order in which they would have been. ?1 the last one's `available`,
-- ?2 the same
UPDATE solely_entries
SET state = 0, owner = '', until = 0, lines = NULL, opens = available - ?, available = available - ?
WHERE queue IS NOT NULL
