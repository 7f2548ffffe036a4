-- What the store keeps. Times are µs of the server's clock_timestamp(); durations are µs.
-- In braces stand the names that the URL configures: see statements.py.

CREATE TYPE {waiter} AS (client text, owner text);
CREATE TYPE {displaced} AS (owner text, fence bigint, how text, until bigint);

-- One row per key: the Record of stores/transitions.py. Empty lists are NULL. What belongs to queue items only stands
-- in columns of its own, the only indexed ones beside the key, so that changing any other row stays within its page.
CREATE TABLE {entries} (
    key            text COLLATE "C" PRIMARY KEY,
    state          "char"  NOT NULL,              -- f free, h held, d done, as last written
    owner          text    NOT NULL DEFAULT '',
    fence          bigint  NOT NULL DEFAULT 0,
    until          bigint  NOT NULL DEFAULT 0,    -- 0: never
    delay          bigint  NOT NULL DEFAULT 0,
    opens          bigint  NOT NULL DEFAULT 0,
    kept           bigint  NOT NULL DEFAULT 0,
    attempts       integer NOT NULL DEFAULT 0,
    refused        integer NOT NULL DEFAULT 0,
    fingerprint    text    NOT NULL DEFAULT '',
    info           text    NOT NULL DEFAULT '',
    value          bytea,
    offered_client text,
    offered_owner  text,
    waiters        {waiter}[],
    gone           {displaced}[],
    queue          text COLLATE "C",              -- of an item: its queue, quoted as in the key
    available      bigint,                        -- of an item: since when (from when) it may be taken
    turn           bigint,                        -- of an item: its fence, which orders what became available together
    taker          text                           -- of an item that is held: its owner
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX {items_by_wait} ON {entries} (queue, available, turn) WHERE queue IS NOT NULL;
CREATE INDEX {items_by_taker} ON {entries} (queue, taker) WHERE queue IS NOT NULL;

CREATE TABLE {hits} (
    key   text COLLATE "C" NOT NULL,
    owner text   NOT NULL,
    at    bigint NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (key, owner)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX {hits_by_end} ON {hits} (until);

-- Fences. A plain sequence, logged and never cached; raised to the clock in µs in each new life of the server.
CREATE SEQUENCE {fence} AS bigint;

-- One row: the life of the server in which the fences were last raised.
CREATE TABLE {server} (
    id   boolean PRIMARY KEY DEFAULT true CHECK (id),
    life text NOT NULL
);
INSERT INTO {server} (life) VALUES ('');
