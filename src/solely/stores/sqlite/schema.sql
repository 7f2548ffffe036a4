-- All of a store. The names say whose tables these are, since another program may have its own in the same file.
-- Times are integer µs: of the lease clock where a row is free or held; where it is done, of the clock that outlives a
-- reboot (transitions.py says which field runs on which, clock.py what these clocks are).

-- One row: what all processes must agree on.
CREATE TABLE solely_meta (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,             -- of this schema
    boot_id TEXT    NOT NULL,             -- the boot whose clock the leases of this file run on
    base    INTEGER NOT NULL,             -- added to the boot clock, it gives this boot's fences and what outlives it
    born    INTEGER NOT NULL,             -- no smaller fence was ever handed out: one that was is another file's
    voided  INTEGER NOT NULL,             -- what was held under a smaller fence was voided by a reboot
    fence   INTEGER NOT NULL,             -- no greater fence was ever handed out
    latest  INTEGER NOT NULL              -- the latest lease time seen, kept where the lease clock could go back
);

-- WITHOUT ROWID: a key is found, acquired and released in one b-tree, so a lease costs one page.
CREATE TABLE solely_entries (
    key         TEXT    NOT NULL PRIMARY KEY,
    state       INTEGER NOT NULL,         -- 0 free, 1 held, 2 done
    owner       TEXT    NOT NULL DEFAULT '',
    fence       INTEGER NOT NULL,
    until       INTEGER NOT NULL DEFAULT 0,
    delay       INTEGER NOT NULL DEFAULT 0,
    opens       INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    kept        INTEGER NOT NULL DEFAULT 0,
    refused     INTEGER NOT NULL DEFAULT 0,
    fingerprint TEXT    NOT NULL DEFAULT '',
    info        TEXT    NOT NULL DEFAULT '',
    lines       TEXT,                     -- JSON of who waits, who is offered the key and who is gone; NULL: nobody
    queue       TEXT,                     -- of a queue item, else NULL
    available   INTEGER,                  -- of a queue item: since when (from when) it may be taken
    value       BLOB
) WITHOUT ROWID;

-- Take: the item that has waited longest, and the one that this owner has. Other entries are in neither index.
CREATE INDEX solely_items_by_wait ON solely_entries (queue, available, fence) WHERE queue IS NOT NULL;
CREATE INDEX solely_items_by_owner ON solely_entries (queue, owner) WHERE queue IS NOT NULL;

CREATE TABLE solely_hits (
    key   TEXT    NOT NULL,
    owner TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (key, owner)
) WITHOUT ROWID;

CREATE INDEX solely_hits_by_time ON solely_hits (key, at);
CREATE INDEX solely_hits_by_end ON solely_hits (until);
