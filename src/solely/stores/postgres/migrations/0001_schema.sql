-- The whole schema: what the store keeps, and one function per op, which decides and writes on the server's clock.
-- Times are µs of the server's clock_timestamp(); durations are µs. Names in braces are configured by the URL: see
-- statements.py. The functions say what stores/transitions.py says.

-- Tables

CREATE TYPE {waiter} AS (client text, owner text);
CREATE TYPE {displaced} AS (owner text, fence bigint, how text, until bigint);

-- One row per key: the StoredRecord of stores/transitions.py. Empty lists are NULL. What belongs to queue items only is
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

-- Keeps the last fence, through rollbacks as well: see next_fences. A plain sequence, logged and never cached.
CREATE SEQUENCE {fence} AS bigint;

-- One row: no smaller fence than `born` was ever given since these tables were made.
CREATE TABLE {birth} (
    id   boolean PRIMARY KEY DEFAULT true CHECK (id),
    born bigint NOT NULL
);

-- Records: how a key is locked, and how a record is read, judged, shown and written.
-- r is a record, moment is now in µs, k a key, who an owner.

-- What every op answers; unused fields are NULL.
--   state: f free, h held, d done, c closed; b busy: not performed, since another transaction decides on this key
--   remaining: µs, -1 for ever
-- An op that does not answer an entry answers a number in `fence`.
CREATE TYPE {reply} AS (
    state "char", fence bigint, remaining bigint, mine boolean, attempts integer, refused integer, waiters integer,
    fingerprint text, info text, value bytea, gone text
);

-- The first 64 bits of SHA-256 of the table's name and the key.
CREATE FUNCTION {lock_id}(k text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ('x' || left(encode(sha256(convert_to({prefix} || k, 'UTF8')), 'hex'), 16))::bit(64)::bigint
$$;

-- Called when trying to lock the key failed: false if patience is NULL, so that the op is answered busy; else true once
-- the key is locked until the end of the transaction, or lock_not_available after that many ms.
CREATE FUNCTION {waited}(k text, patience integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    IF patience IS NULL THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', patience || 'ms', true);
    PERFORM pg_advisory_xact_lock({lock_id}(k));
    PERFORM set_config('lock_timeout', before, true);
    RETURN true;
END
$$;

-- clock_timestamp(), not now(): that is the transaction's start, before the wait for the lock. `clock` is the injected
-- one of tests, else NULL.
CREATE FUNCTION {moment}(clock bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(clock, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
$$;

INSERT INTO {birth} (born) VALUES (setval({fence_name}, {moment}(NULL)));

-- True if what was given under this fence, 0 if that is not known, was given before these tables were made.
CREATE FUNCTION {is_lost}(under bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT under > 0 AND EXISTS (SELECT FROM {birth} b WHERE b.born > under)
$$;

-- The first of so many fences: greater than all before it, and not behind the clock.
-- The sequence keeps the last one, through rollbacks as well. Whoever moves it holds the lock of the fences for these
-- steps only, not until the transaction ends: the exception undoes the block, and so releases the lock, while setval()
-- is never undone. No two calls are between the look and the move; and whoever gets a key after another one, whose
-- transaction held the lock of the key, calls this later: so the fences of a key grow, also if the clock is set back.
CREATE FUNCTION {next_fences}(moment bigint, many integer) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM pg_advisory_xact_lock({lock_id}('fences'));
    SELECT greatest(s.last_value + 1, moment) INTO first FROM {fence} s;
    PERFORM setval({fence_name}, first + many - 1);
    RAISE EXCEPTION USING ERRCODE = 'SL002';
EXCEPTION WHEN SQLSTATE 'SL002' THEN
    RETURN first;
END
$$;

-- True if a record is treated as absent, so that it may be deleted now or at any later time.
CREATE FUNCTION {useless}(r {entries}, moment bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT NOT (r.value IS NOT NULL AND r.state <> 'd')
        AND NOT (r.state = 'd' AND r.until = 0)
        AND CASE r.state
            WHEN 'h' THEN r.until + r.delay + 60000000
            WHEN 'd' THEN r.until
            ELSE greatest(r.opens, r.kept) + CASE WHEN r.waiters IS NULL THEN 0 ELSE 60000000 END
        END <= moment
        AND (r.gone IS NULL OR (r.gone[cardinality(r.gone)]).until <= moment)
$$;

-- True if the hold or the finished entry has expired.
CREATE FUNCTION {over}(r {entries}, moment bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT r.state = 'f' OR (r.until <> 0 AND moment >= r.until)
$$;

-- True if a row with this key, which is locked, may be inserted: whoever would be refused takes no fence, and so writes
-- nothing. Above READ COMMITTED the snapshot may be older than the lock, and only the insert itself shows it.
CREATE FUNCTION {absent}(k text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN current_setting('transaction_isolation') <> 'read committed'
        OR NOT EXISTS (SELECT FROM {entries} e WHERE e.key = k);
END
$$;

-- The record under a key that is locked; a new one where there is none that still matters.
-- Above READ COMMITTED the snapshot may be older than the lock: then the row is locked as well, which raises
-- serialization_failure if it was changed meanwhile.
CREATE FUNCTION {load}(k text, moment bigint) RETURNS {entries} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r {entries};
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO r FROM {entries} e WHERE e.key = k;
    ELSE
        SELECT * INTO r FROM {entries} e WHERE e.key = k FOR UPDATE;
    END IF;
    IF NOT FOUND OR {useless}(r, moment) THEN
        r := NULL;
        r.key := k;
        r.state := 'f';
        r.owner := '';
        r.fence := 0;
        r.until := 0;
        r.delay := 0;
        r.opens := 0;
        r.kept := 0;
        r.attempts := 0;
        r.refused := 0;
        r.fingerprint := '';
        r.info := '';
    END IF;
    RETURN r;
END
$$;

-- Writes the record, or forgets it if it answers nothing more.
CREATE FUNCTION {save}(r {entries}, moment bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF {useless}(r, moment) THEN
        DELETE FROM {entries} e WHERE e.key = r.key;
        RETURN;
    END IF;
    IF r.value IS NOT NULL AND r.state <> 'd' THEN
        r.queue := split_part(r.key, '/', 2);
        r.available := CASE r.state WHEN 'h' THEN r.until ELSE r.opens END;
        r.turn := r.fence;
        r.taker := CASE r.state WHEN 'h' THEN r.owner END;
    ELSE
        r.queue := NULL;
        r.available := NULL;
        r.turn := NULL;
        r.taker := NULL;
    END IF;
    INSERT INTO {entries} SELECT r.*
    ON CONFLICT (key) DO UPDATE SET
        state = EXCLUDED.state, owner = EXCLUDED.owner, fence = EXCLUDED.fence, until = EXCLUDED.until,
        delay = EXCLUDED.delay, opens = EXCLUDED.opens, kept = EXCLUDED.kept, attempts = EXCLUDED.attempts,
        refused = EXCLUDED.refused, fingerprint = EXCLUDED.fingerprint, info = EXCLUDED.info, value = EXCLUDED.value,
        offered_client = EXCLUDED.offered_client, offered_owner = EXCLUDED.offered_owner,
        waiters = EXCLUDED.waiters, gone = EXCLUDED.gone,
        queue = EXCLUDED.queue, available = EXCLUDED.available, turn = EXCLUDED.turn, taker = EXCLUDED.taker;
END
$$;

-- How this owner is gone, or '' if it is not known to be.
CREATE FUNCTION {how}(r {entries}, who text, moment bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_how text;
BEGIN
    IF r.gone IS NOT NULL THEN
        SELECT d.how INTO found_how FROM unnest(r.gone) d WHERE d.owner = who AND d.until > moment LIMIT 1;
    END IF;
    RETURN coalesce(found_how, CASE WHEN r.state = 'h' AND r.owner = who AND moment >= r.until THEN 'expired' ELSE '' END);
END
$$;

-- The memory of displaced owners with one more, which relied on the key until `ends` at the latest, in the order in which
-- they are forgotten; the last 128 are remembered.
CREATE FUNCTION {displace}(gone {displaced}[], who text, under bigint, how text, moment bigint, ends bigint DEFAULT 0)
RETURNS {displaced}[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    lost {displaced} := ROW(who, under, how, greatest(moment, ends) + 60000000);
    kept {displaced}[];
BEGIN
    kept := ARRAY(SELECT d FROM unnest(gone) d WHERE d.until > moment AND (d.owner <> who OR who = ''));
    IF (kept[cardinality(kept)]).until > lost.until THEN
        kept := ARRAY(SELECT d FROM unnest(kept || lost) d ORDER BY d.until);
    ELSE
        kept := kept || lost;
    END IF;
    RETURN kept[greatest(1, cardinality(kept) - 127):];
END
$$;

CREATE FUNCTION {set_free}(r {entries}) RETURNS {entries} LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    r.state := 'f';
    r.owner := '';
    r.until := 0;
    r.delay := 0;
    r.fingerprint := '';
    r.info := '';
    RETURN r;
END
$$;

-- Offers a key that was just released to the first waiter for 20 ms, and notifies only that one.
CREATE FUNCTION {offer}(r {entries}, moment bigint) RETURNS {entries} LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := 0;
    IF r.waiters IS NOT NULL THEN
        r.offered_client := (r.waiters[1]).client;
        r.offered_owner := (r.waiters[1]).owner;
        r.opens := moment + 20000;
        r.waiters := CASE WHEN cardinality(r.waiters) > 1 THEN r.waiters[2:] END;
        PERFORM pg_notify('solely_' || r.offered_client, r.key);
    END IF;
    RETURN r;
END
$$;

-- A client is in the queue once; a newer attempt of it keeps its place.
CREATE FUNCTION {queued}(waiters {waiter}[], asker text, who text) RETURNS {waiter}[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    FOR place IN 1 .. coalesce(cardinality(waiters), 0) LOOP
        IF (waiters[place]).client = asker THEN
            waiters[place] := ROW(asker, who)::{waiter};
            RETURN waiters;
        END IF;
    END LOOP;
    IF coalesce(cardinality(waiters), 0) < 1000 THEN
        waiters := waiters || ROW(asker, who)::{waiter};
    END IF;
    RETURN waiters;
END
$$;

-- The entry as `asker` may see it now.
CREATE FUNCTION {view}(r {entries}, moment bigint, asker text, with_value boolean)
RETURNS {reply} LANGUAGE plpgsql STABLE AS $$
DECLARE
    a    {reply};
    item boolean := r.value IS NOT NULL AND r.state <> 'd';
    live boolean;
    span bigint := r.opens - moment;
BEGIN
    IF {useless}(r, moment) THEN
        a.state := 'f';
        RETURN a;
    END IF;
    a.state := r.state;
    IF r.state = 'h' THEN
        span := r.until - moment;
        IF span <= 0 THEN
            a.state := 'f';
            span := span + r.delay;
        END IF;
    ELSIF r.state = 'd' THEN
        span := r.until - moment;
        IF r.until <> 0 AND span <= 0 THEN
            a.state := 'f';
        END IF;
    END IF;
    IF a.state = 'f' AND span > 0 THEN
        a.state := 'c';
    END IF;
    live := a.state = 'h' OR a.state = 'd';
    a.remaining := CASE WHEN a.state = 'd' AND r.until = 0 THEN -1 ELSE greatest(0, span) END;
    a.mine := live AND asker <> '' AND r.owner = asker;
    a.waiters := cardinality(r.waiters);
    IF live OR item THEN
        a.fence := r.fence;
    END IF;
    IF live OR item OR r.state = 'h' OR moment < r.kept THEN
        a.attempts := r.attempts;
        a.refused := r.refused;
    END IF;
    IF live THEN
        a.fingerprint := r.fingerprint;
        a.info := r.info;
    END IF;
    IF with_value AND (a.state = 'd' OR item) THEN
        a.value := r.value;
    END IF;
    IF asker <> '' THEN
        a.gone := {how}(r, asker, moment);
    END IF;
    RETURN a;
END
$$;

-- Ops on entries. Each function is one op: it locks its key, reads the clock, decides and writes.
-- clock: NULL, or the injected one of tests. patience: NULL to be answered busy, else ms to wait for a busy key.
-- First comes the plain case in one statement; what is not plain is decided on the record, as in transitions.py.

CREATE FUNCTION {acquire}(
    clock bigint, patience integer, k text, who text, ttl bigint, about text, asker text, closing bigint, print text,
    counted boolean, with_value boolean
) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    was    {entries};
    moment bigint;
    live   boolean;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    IF {absent}(k) THEN
        a.fence := {next_fences}(moment, 1);
        INSERT INTO {entries} (key, state, owner, fence, until, delay, attempts, fingerprint, info)
        VALUES (k, 'h', who, a.fence, moment + ttl, closing, 1, print, about)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            a.state := 'h';
            a.remaining := ttl;
            a.mine := true;
            a.attempts := 1;
            a.fingerprint := print;
            a.info := about;
            RETURN a;
        END IF;
    END IF;

    r := {load}(k, moment);
    was := r;
    live := NOT {over}(r, moment);
    IF {how}(r, who, moment) <> '' OR (live AND r.owner = who) THEN
        RETURN {view}(r, moment, who, with_value);
    END IF;
    IF live
        OR (r.state = 'f' AND moment < r.opens AND NOT (asker <> '' AND r.offered_client IS NOT DISTINCT FROM asker))
        OR (r.state = 'h' AND moment < r.until + r.delay)
    THEN
        IF counted THEN
            r.refused := r.refused + 1;
        END IF;
        IF asker <> '' AND r.state <> 'd' THEN
            r.waiters := {queued}(r.waiters, asker, who);
        END IF;
        IF r IS DISTINCT FROM was THEN
            PERFORM {save}(r, moment);
        END IF;
        RETURN {view}(r, moment, who, with_value);
    END IF;
    IF r.state = 'h' THEN
        r.gone := {displace}(r.gone, r.owner, r.fence, 'expired', moment);
    ELSIF r.state = 'd' OR moment >= r.kept THEN
        r.attempts := 0;
        r.refused := 0;
    END IF;
    r.state := 'h';
    r.owner := who;
    r.fence := {next_fences}(moment, 1);
    r.until := moment + ttl;
    r.delay := closing;
    r.attempts := r.attempts + 1;
    r.fingerprint := print;
    r.info := about;
    r.value := NULL;
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := 0;
    r.kept := 0;
    IF r.waiters IS NOT NULL THEN
        SELECT array_agg(w) INTO r.waiters FROM unnest(r.waiters) w WHERE w.client <> asker;
    END IF;
    PERFORM {save}(r, moment);
    RETURN {view}(r, moment, who, with_value);
END
$$;

-- An Acquire of nothing more: the fence alone for a fresh hold, else the reply as JSON; NULL for busy.
CREATE FUNCTION {acquire_plain}(
    clock bigint, patience integer, k text, who text, ttl bigint, about text, asker text
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment  bigint;
    granted bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        RETURN NULL;
    END IF;
    IF {absent}(k) THEN
        moment := {moment}(clock);
        granted := {next_fences}(moment, 1);
        INSERT INTO {entries} (key, state, owner, fence, until, attempts, info)
        VALUES (k, 'h', who, granted, moment + ttl, 1, about)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            RETURN granted;
        END IF;
    END IF;
    RETURN row_to_json({acquire}(clock, patience, k, who, ttl, about, asker, 0, '', false, false));
END
$$;

CREATE FUNCTION {renew}(clock bigint, patience integer, k text, who text, ttl bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    UPDATE {entries} e SET until = greatest(e.until, moment + ttl)
    WHERE e.key = k AND e.owner = who AND e.state = 'h' AND e.until > moment AND e.queue IS NULL
    RETURNING * INTO r;
    IF NOT FOUND THEN
        r := {load}(k, moment);
        IF r.state = 'h' AND r.owner = who AND moment < r.until THEN
            r.until := greatest(r.until, moment + ttl);
            PERFORM {save}(r, moment);
        END IF;
    END IF;
    RETURN {view}(r, moment, who, false);
END
$$;

CREATE FUNCTION {resume}(
    clock bigint, patience integer, k text, who text, successor text, ttl bigint, about text
) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    IF r.state = 'h' AND r.owner = who AND moment < r.until AND successor <> who
        AND {how}(r, successor, moment) = ''
    THEN
        r.gone := {displace}(r.gone, who, r.fence, 'resumed', moment, r.until);
        r.owner := successor;
        r.until := moment + ttl;
        IF r.value IS NULL THEN
            r.fence := {next_fences}(moment, 1);
            r.info := about;
        END IF;
        PERFORM {save}(r, moment);
    END IF;
    RETURN {view}(r, moment, successor, true);
END
$$;

CREATE FUNCTION {finish}(clock bigint, patience integer, k text, who text, body bytea, keep bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    IF r.state = 'h' AND r.owner = who THEN
        r.state := 'd';
        r.value := body;
        r.delay := 0;
        r.until := moment + keep;
        PERFORM pg_notify('solely_' || w.client, k) FROM unnest(r.waiters) w;
        r.waiters := NULL;
        PERFORM {save}(r, moment);
    END IF;
    RETURN {view}(r, moment, who, true);
END
$$;

-- `under` is the fence of the hold, 0 if that is not known.
-- fence: 1 released, 2 expired, 3 cleared, 4 nothing of this owner is here (never without a fence), 5 the store lost it,
-- 6 resumed
CREATE FUNCTION {release}(
    clock bigint, patience integer, k text, who text, revoke boolean, closing bigint, keep bigint, under bigint
) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    was    {entries};
    moment bigint;
    why    text;
    held   boolean;
    here   boolean;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    a.fence := 1;
    IF NOT revoke AND closing = 0 AND keep = 0 THEN
        DELETE FROM {entries} e
        WHERE e.key = k AND e.owner = who AND e.state = 'h' AND e.until > moment AND under IN (0, e.fence)
            AND e.waiters IS NULL AND e.gone IS NULL;
        IF FOUND THEN
            RETURN a;
        END IF;
    END IF;

    r := {load}(k, moment);
    was := r;
    why := {how}(r, who, moment);
    held := r.state = 'h' AND r.owner = who;
    here := r.state <> 'f' AND r.owner = who AND under IN (0, r.fence);
    IF held THEN
        IF why <> '' THEN
            r.gone := {displace}(r.gone, who, r.fence, 'expired', moment);
            r.opens := r.until + r.delay;
            r.kept := moment + 60000000;
        ELSE
            r.opens := moment + closing;
            r.kept := moment + keep;
        END IF;
        r := {set_free}(r);
        r.value := NULL;
        IF r.opens <= moment THEN
            r := {offer}(r, moment);
        END IF;
    ELSIF r.state = 'd' AND r.owner = who AND r.value IS NULL THEN
        r := {set_free}(r);
    ELSIF r.offered_owner = who AND moment < r.opens THEN
        r := {offer}(r, moment);
    END IF;
    IF r.waiters IS NOT NULL THEN
        SELECT array_agg(w) INTO r.waiters FROM unnest(r.waiters) w WHERE w.owner <> who;
    END IF;
    IF revoke AND why = '' THEN
        r.gone := {displace}(r.gone, who, CASE WHEN held THEN r.fence ELSE 0 END, 'revoked', moment);
    END IF;
    IF r IS DISTINCT FROM was THEN
        PERFORM {save}(r, moment);
    END IF;
    a.fence := CASE
        WHEN why = 'expired' THEN 2
        WHEN why = 'cleared' THEN 3
        WHEN why = 'resumed' THEN 6
        WHEN here OR under = 0 THEN 1
        WHEN why <> '' AND EXISTS (SELECT FROM unnest(was.gone) d WHERE d.owner = who AND d.fence = under) THEN 1
        WHEN {is_lost}(under) THEN 5
        ELSE 4
    END;
    RETURN a;
END
$$;

-- Raises serialization_failure if the mark takes the place of a row that is in the snapshot of the caller's
-- transaction: above READ COMMITTED (see within.py) that may be older than the lock of the key. Then a row that was
-- deleted since is still visible there, and beside it the one that is inserted in its place.
-- fence: 1 first, 0 seen
CREATE FUNCTION {mark}(clock bigint, patience integer, k text, who text, ttl bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    a.fence := 1;
    IF {absent}(k) THEN
        INSERT INTO {entries} (key, state, owner, fence, until)
        VALUES (k, 'd', who, {next_fences}(moment, 1), moment + ttl)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                PERFORM FROM {entries} e WHERE e.key = k FOR UPDATE;
            END IF;
            RETURN a;
        END IF;
    END IF;

    r := {load}(k, moment);
    IF {how}(r, who, moment) <> '' THEN
        a.fence := 0;
        RETURN a;
    ELSIF NOT {over}(r, moment) THEN
        a.fence := (r.state = 'd' AND r.owner = who)::integer;
        RETURN a;
    END IF;
    IF r.state = 'h' THEN
        r.gone := {displace}(r.gone, r.owner, r.fence, 'expired', moment);
    END IF;
    r := {set_free}(r);
    r.state := 'd';
    r.owner := who;
    r.fence := {next_fences}(moment, 1);
    r.until := moment + ttl;
    r.value := NULL;
    r.attempts := 0;
    r.refused := 0;
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := 0;
    r.kept := 0;
    PERFORM {save}(r, moment);
    RETURN a;
END
$$;

-- A Mark that extends the mark that is there, unless its owner is gone; the fence and the owner of that one stay.
-- fence: 1 first, 0 seen
CREATE FUNCTION {mark_longer}(clock bigint, patience integer, k text, who text, ttl bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    UPDATE {entries} e SET until = moment + ttl
    WHERE e.key = k AND e.state = 'd' AND e.value IS NULL AND e.until > moment AND e.until < moment + ttl
        AND NOT EXISTS (SELECT FROM unnest(e.gone) d WHERE d.owner = who AND d.until > moment);
    RETURN {mark}(clock, patience, k, who, ttl);
END
$$;

-- Looks without a lock: one row of one snapshot is the entry as it was at one moment; of two, the later one is ours.
CREATE FUNCTION {read}(clock bigint, patience integer, k text) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
    r {entries};
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO r FROM {entries} e WHERE e.key = k;
    ELSE
        SELECT * INTO r FROM {entries} e WHERE e.key = k ORDER BY e.fence DESC LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        a.state := 'f';
        RETURN a;
    END IF;
    RETURN {view}(r, {moment}(clock), '', true);
END
$$;

-- fence: 1 cleared (now or before), 0 it had moved on
CREATE FUNCTION {clear}(clock bigint, patience integer, k text, under bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    a.fence := 1;
    IF EXISTS (SELECT FROM unnest(r.gone) d WHERE d.fence = under AND d.how = 'cleared' AND d.until > moment) THEN
        RETURN a;
    END IF;
    IF r.fence <> under OR (NOT (r.value IS NOT NULL AND r.state <> 'd') AND {over}(r, moment)) THEN
        a.fence := 0;
        RETURN a;
    END IF;
    r.gone := {displace}(r.gone, r.owner, r.fence, 'cleared', moment);
    r := {set_free}(r);
    r.value := NULL;
    r.attempts := 0;
    r.refused := 0;
    r.kept := 0;
    r := {offer}(r, moment);
    PERFORM {save}(r, moment);
    RETURN a;
END
$$;

CREATE FUNCTION {advance}(clock bigint, patience integer, k text, body bytea)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    IF NOT (r.state = 'd' AND r.value IS NOT NULL AND r.value >= body) THEN
        r := {set_free}(r);
        r.state := 'd';
        r.value := body;
        r.fence := {next_fences}(moment, 1);
        PERFORM {save}(r, moment);
    END IF;
    RETURN {view}(r, moment, '', true);
END
$$;

-- Limits and queues: one function per op, as above.

-- fence: 1 allowed, 0 limited; attempts: hits in the window; remaining: retry after
CREATE FUNCTION {hit}(clock bigint, patience integer, k text, who text, most bigint, per bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    moment bigint;
    mine   bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    DELETE FROM {hits} h WHERE h.key = k AND h.at <= moment - per;
    SELECT count(*), count(*) FILTER (WHERE h.owner = who) INTO a.attempts, mine FROM {hits} h WHERE h.key = k;
    a.fence := 1;
    IF mine = 0 AND a.attempts < most THEN
        INSERT INTO {hits} (key, owner, at, until) VALUES (k, who, moment, moment + per);
        a.attempts := a.attempts + 1;
    ELSIF mine = 0 THEN
        a.fence := 0;
        SELECT greatest(0, h.at + per - moment) INTO a.remaining
        FROM {hits} h WHERE h.key = k ORDER BY h.at OFFSET a.attempts - most LIMIT 1;
    END IF;
    RETURN a;
END
$$;

-- fence: 1 given back, 0 there was none
CREATE FUNCTION {unhit}(clock bigint, patience integer, k text, who text)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    DELETE FROM {hits} h WHERE h.key = k AND h.owner = who;
    a.fence := FOUND::integer;
    RETURN a;
END
$$;

-- The line of a queue is the record line/<queue>, of which only the waiters matter. Nobody waits for its lock: a Push
-- that does not get it notifies nobody, a Take is not put in line, and whoever waits looks again soon. Nor can a Take see
-- what is pushed at the same time, or that Push its place in line: so a client that has joined a line looks a second time.

-- Notifies the first client in the line of a queue that got this item, k. Not above READ COMMITTED: there it might end
-- the caller's transaction, since others change the line as well.
CREATE FUNCTION {call_first}(k text, moment bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r    {entries};
    line text := 'line/' || split_part(k, '/', 2);
BEGIN
    IF NOT EXISTS (SELECT FROM {entries} e WHERE e.key = line AND e.waiters IS NOT NULL)
        OR current_setting('transaction_isolation') <> 'read committed'
        OR NOT pg_try_advisory_xact_lock({lock_id}(line))
    THEN
        RETURN;
    END IF;
    r := {load}(line, moment);
    IF r.waiters IS NOT NULL THEN
        PERFORM pg_notify('solely_' || (r.waiters[1]).client, line);
        r.waiters := CASE WHEN cardinality(r.waiters) > 1 THEN r.waiters[2:] END;
        PERFORM {save}(r, moment);
    END IF;
END
$$;

-- fence: 1 put in, 0 there already
CREATE FUNCTION {push}(clock bigint, patience integer, k text, body bytea, closing bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    a.fence := 0;
    IF r.value IS NOT NULL AND r.state <> 'd' THEN
        RETURN a;
    END IF;
    r := {set_free}(r);
    r.value := body;
    r.fence := {next_fences}(moment, 1);
    r.attempts := 0;
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := moment + closing;
    PERFORM {save}(r, moment);
    IF closing = 0 THEN
        PERFORM {call_first}(r.key, moment);
    END IF;
    a.fence := 1;
    RETURN a;
END
$$;

-- The item that has waited longest, or the one named by `id`; or the one that this owner has. Items that another
-- transaction decides on are passed over: nobody waits for them.
-- info: id; value: payload; state NULL: there is none
CREATE FUNCTION {take}(clock bigint, patience integer, q text, who text, ttl bigint, id text)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a         {reply};
    r         {entries};
    candidate text;
    mine      text := 'take/' || q || '/' || who;
    moment    bigint;
BEGIN
    -- Two copies of one Take must not take two items.
    IF NOT (pg_try_advisory_xact_lock({lock_id}(mine)) OR {waited}(mine, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    SELECT * INTO r FROM {entries} e
    WHERE e.queue = q AND e.taker = who AND e.state = 'h' AND e.until > moment LIMIT 1;
    IF NOT FOUND THEN
        IF id <> '' THEN
            candidate := 'item/' || q || '/' || id;
            IF pg_try_advisory_xact_lock({lock_id}(candidate)) THEN
                SELECT * INTO r FROM {entries} e
                WHERE e.key = candidate AND e.queue = q AND e.available <= moment FOR UPDATE SKIP LOCKED;
            END IF;
        ELSE
            FOR candidate IN
                SELECT e.key FROM {entries} e WHERE e.queue = q AND e.available <= moment ORDER BY e.available, e.turn
            LOOP
                CONTINUE WHEN NOT pg_try_advisory_xact_lock({lock_id}(candidate));
                SELECT * INTO r FROM {entries} e
                WHERE e.key = candidate AND e.queue = q AND e.available <= moment FOR UPDATE SKIP LOCKED;
                EXIT WHEN FOUND;
            END LOOP;
        END IF;
        IF r.key IS NULL THEN
            RETURN a;
        END IF;
        r.state := 'h';
        r.owner := who;
        r.until := moment + ttl;
        r.attempts := r.attempts + 1;
        PERFORM {save}(r, moment);
    END IF;
    a.state := 'h';
    a.fence := r.fence;
    a.remaining := r.until - moment;
    a.attempts := r.attempts;
    a.info := substr(r.key, length('item/' || q || '/') + 1);
    a.value := r.value;
    RETURN a;
END
$$;

-- A Take that joins the line of its queue, as `asker`, if there is nothing to take.
-- As take; if state is NULL, remaining: µs until the next item becomes available, NULL: there is none
CREATE FUNCTION {take_or_wait}(
    clock bigint, patience integer, q text, who text, ttl bigint, id text, asker text
) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply} := {take}(clock, patience, q, who, ttl, id);
    r      {entries};
    line   text := 'line/' || q;
    moment bigint;
BEGIN
    IF a.state IS NOT NULL THEN
        RETURN a;
    END IF;
    moment := {moment}(clock);
    IF pg_try_advisory_xact_lock({lock_id}(line)) THEN
        r := {load}(line, moment);
        IF r.waiters IS NULL OR NOT ROW(asker, who)::{waiter} = ANY (r.waiters) OR r.opens + 30000000 < moment THEN
            r.waiters := {queued}(r.waiters, asker, who);
            r.opens := moment;
            PERFORM {save}(r, moment);
        END IF;
    END IF;
    SELECT greatest(0, min(e.available) - moment) INTO a.remaining FROM {entries} e WHERE e.queue = q
    HAVING min(e.available) IS NOT NULL;
    RETURN a;
END
$$;

-- The record without its item: nothing but the memory of who lost it.
CREATE FUNCTION {without_item}(r {entries}) RETURNS {entries} LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    r := {set_free}(r);
    r.value := NULL;
    r.opens := 0;
    r.attempts := 0;
    RETURN r;
END
$$;

-- `under` is the fence of the item, 0 if that is not known.
-- fence: 1 gone from the queue, 0 another owner has it, or resumed and removed it, a later item has its id, or the store
-- lost it
CREATE FUNCTION {ack}(clock bigint, patience integer, k text, who text, under bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    DELETE FROM {entries} e
    WHERE e.key = k AND e.queue IS NOT NULL AND e.taker = who AND (under = 0 OR e.fence = under) AND e.gone IS NULL;
    IF FOUND THEN
        a.fence := 1;
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    IF r.value IS NULL OR r.state = 'd' THEN
        a.fence := (NOT {is_lost}(under) AND {how}(r, who, moment) <> 'resumed')::integer;
    ELSIF r.state = 'h' AND r.owner = who AND under IN (0, r.fence) THEN
        PERFORM {save}({without_item}(r), moment);
        a.fence := 1;
    ELSE
        a.fence := 0;
    END IF;
    RETURN a;
END
$$;

-- `uncounted`: the take that ends so is no attempt.
-- fence: 1 back in the queue, 0 this owner does not have it
CREATE FUNCTION {give_back}(clock bigint, patience integer, k text, who text, closing bigint, uncounted boolean)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    UPDATE {entries} e
    SET state = 'f', owner = '', until = 0, taker = NULL, opens = moment + closing, available = moment + closing,
        attempts = e.attempts - uncounted::integer
    WHERE e.key = k AND e.queue IS NOT NULL AND e.taker = who;
    a.fence := FOUND::integer;
    IF FOUND AND closing = 0 THEN
        PERFORM {call_first}(k, moment);
    END IF;
    RETURN a;
END
$$;

-- Replaces the item's bytes if they are `expected`, and nothing else of it; a body that is NULL removes the item, unless
-- it is taken. A repeat finds the new bytes, and changes nothing.
-- fence: 1 the item's bytes are `body` now, or it is removed; 0 it has other bytes, or there is none
CREATE FUNCTION {amend}(clock bigint, patience integer, k text, body bytea, expected bytea)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    moment bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    r := {load}(k, moment);
    a.fence := 0;
    IF r.value IS NULL OR r.state = 'd' THEN
        RETURN a;
    END IF;
    a.fence := 1;
    IF r.value = body THEN
        RETURN a;
    END IF;
    IF r.value <> expected OR (body IS NULL AND NOT {over}(r, moment)) THEN
        a.fence := 0;
        RETURN a;
    END IF;
    IF body IS NULL THEN
        r := {without_item}(r);
    ELSE
        r.value := body;
    END IF;
    PERFORM {save}(r, moment);
    RETURN a;
END
$$;

-- fence: the items of the queue, taken or not
CREATE FUNCTION {count}(clock bigint, patience integer, q text) RETURNS {reply} LANGUAGE plpgsql VOLATILE
SET jit = off AS $$
DECLARE
    a {reply};
BEGIN
    SELECT count(*) INTO a.fence FROM {entries} e WHERE e.queue = q;
    RETURN a;
END
$$;

-- Batches, and what runs beside them.
-- Where a plan may look costly, as where no table is read whole, the server would compile it, which takes it many times
-- as long as to perform it: jit is off in these functions, for connections on which we may set nothing.

-- Performs a batch in order; one reply per op. Each array has one element per op, or is NULL where all are NULL.
-- What an op does not use is NULL; `number` is a fence, a limit, or flags: see codec.py.
-- An op on a key that is busy is answered so, and so are the later ones of that key: their order stays.
CREATE FUNCTION {perform}(
    clock bigint, codes text[], keys text[], owners text[], spans bigint[], delays bigint[], numbers bigint[],
    texts text[], clients text[], prints text[], bodies bytea[]
) RETURNS SETOF {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a    {reply};
    op   record;
    busy text[];
BEGIN
    FOR op IN
        SELECT * FROM unnest(codes, keys, owners, spans, delays, numbers, texts, clients, prints, bodies)
            AS o (code, k, who, span, delay, num, txt, client, print, body)
    LOOP
        IF op.k = ANY (busy) THEN
            a := NULL;
            a.state := 'b';
            RETURN NEXT a;
            CONTINUE;
        END IF;
        CASE op.code
            WHEN 'a' THEN
                a := {acquire}(clock, NULL, op.k, op.who, op.span, coalesce(op.txt, ''), coalesce(op.client, ''),
                    coalesce(op.delay, 0), coalesce(op.print, ''), coalesce(op.num & 1, 0) = 1, coalesce(op.num & 2, 0) = 2);
            WHEN 'l' THEN
                a := {release}(clock, NULL, op.k, op.who, op.txt IS NOT NULL, coalesce(op.delay, 0),
                    coalesce(op.span, 0), coalesce(op.num, 0));
            WHEN 'm' THEN
                IF op.num = 1 THEN
                    a := {mark_longer}(clock, NULL, op.k, op.who, op.span);
                ELSE
                    a := {mark}(clock, NULL, op.k, op.who, op.span);
                END IF;
            WHEN 'n' THEN a := {renew}(clock, NULL, op.k, op.who, op.span);
            WHEN 'r' THEN
                a := {resume}(clock, NULL, op.k, op.who, op.client, op.span, coalesce(op.txt, ''));
            WHEN 'g' THEN a := {read}(clock, NULL, op.k);
            WHEN 'f' THEN a := {finish}(clock, NULL, op.k, op.who, op.body, op.span);
            WHEN 'c' THEN a := {clear}(clock, NULL, op.k, op.num);
            WHEN 'v' THEN a := {advance}(clock, NULL, op.k, op.body);
            WHEN 'h' THEN a := {hit}(clock, NULL, op.k, op.who, op.num, op.span);
            WHEN 'u' THEN a := {unhit}(clock, NULL, op.k, op.who);
            WHEN 'p' THEN a := {push}(clock, NULL, op.k, op.body, coalesce(op.delay, 0));
            WHEN 't' THEN
                IF op.client IS NULL THEN
                    a := {take}(clock, NULL, op.k, op.who, op.span, coalesce(op.txt, ''));
                ELSE
                    a := {take_or_wait}(clock, NULL, op.k, op.who, op.span, coalesce(op.txt, ''), op.client);
                END IF;
            WHEN 'k' THEN a := {ack}(clock, NULL, op.k, op.who, coalesce(op.num, 0));
            WHEN 'b' THEN a := {give_back}(clock, NULL, op.k, op.who, coalesce(op.delay, 0), op.num IS NOT NULL);
            WHEN 'o' THEN a := {count}(clock, NULL, op.k);
            WHEN 'e' THEN
                a := {amend}(clock, NULL, op.k, substr(op.body, 1, op.num::integer),
                    substr(op.body, coalesce(op.num, 0)::integer + 1));
        END CASE;
        IF a.state = 'b' THEN
            busy := busy || op.k;
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Key by key above READ COMMITTED: no row is then read that is not known to be the only one of its key.
-- One digit per key: 1 first, 0 seen, b busy.
CREATE FUNCTION {mark_many}(clock bigint, ks text[], who text, ttl bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    locks   boolean[];
    moment  bigint;
    first   bigint;
    created bigint;
    answers text := '';
    one     {reply};
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        FOR place IN 1 .. cardinality(ks) LOOP
            one := {mark}(clock, NULL, ks[place], who, ttl);
            answers := answers || coalesce(one.state::text, one.fence::text);
        END LOOP;
        RETURN answers;
    END IF;
    SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO locks FROM unnest(ks) k;
    moment := {moment}(clock);
    IF EXISTS (SELECT FROM unnest(ks, locks) AS asked (k, locked) WHERE asked.locked AND {absent}(asked.k)) THEN
        first := {next_fences}(moment, cardinality(ks));
        INSERT INTO {entries} (key, state, owner, fence, until)
        SELECT asked.k, 'd', who, first + asked.place - 1, moment + ttl
        FROM unnest(ks, locks) WITH ORDINALITY AS asked (k, locked, place)
        WHERE asked.locked
        ON CONFLICT (key) DO NOTHING;
        GET DIAGNOSTICS created = ROW_COUNT;
        IF created = cardinality(ks) THEN
            RETURN repeat('1', cardinality(ks));
        END IF;
    END IF;
    SELECT string_agg(
        CASE
            WHEN NOT asked.locked THEN 'b'
            WHEN e.state = 'd' AND e.gone IS NULL AND (e.until = 0 OR e.until > moment) THEN (e.owner = who)::integer::text
            ELSE (SELECT m.fence::text FROM {mark}(clock, NULL, asked.k, who, ttl) m)
        END, '' ORDER BY asked.place
    ) INTO answers
    FROM unnest(ks, locks) WITH ORDINALITY AS asked (k, locked, place) LEFT JOIN {entries} e ON e.key = asked.k;
    RETURN answers;
END
$$;

-- Plain Acquires of different keys, in one statement for all that are granted.
-- fences: one per key that was granted; 0 for one that was refused, -1 for busy
-- others: the replies to those that were refused, in their order, as a JSON array; NULL if there are none
-- Its plans are made once: anew for each call they would take longer than the call. And one that reads the whole table,
-- which is right while that is small, would be kept when it has grown, so there is none.
CREATE FUNCTION {acquire_many}(
    clock bigint, keys text[], owners text[], ttls bigint[], abouts text[], askers text[],
    OUT fences bigint[], OUT others text
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
DECLARE
    locks   boolean[];
    moment  bigint;
    first   bigint;
    made    text[];
    replies   json[];
BEGIN
    SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO locks FROM unnest(keys) k;
    moment := {moment}(clock);
    fences := array_fill(0::bigint, ARRAY[cardinality(keys)]);
    IF EXISTS (
        SELECT FROM unnest(keys, locks) AS asked (k, locked) WHERE asked.locked AND {absent}(asked.k)
    ) THEN
        first := {next_fences}(moment, cardinality(keys));
        SELECT array_agg(fence) INTO fences FROM generate_series(first, first + cardinality(keys) - 1) fence;
        WITH granted AS (
            INSERT INTO {entries} (key, state, owner, fence, until, attempts, info)
            SELECT asked.k, 'h', asked.who, asked.fence, moment + asked.ttl, 1, asked.about
            FROM unnest(keys, owners, fences, ttls, abouts, locks)
                AS asked (k, who, fence, ttl, about, locked)
            WHERE asked.locked
            ON CONFLICT (key) DO NOTHING RETURNING key
        )
        SELECT array_agg(key) INTO made FROM granted;
        IF cardinality(made) = cardinality(keys) THEN
            RETURN;
        END IF;
    END IF;
    FOR place IN 1 .. cardinality(keys) LOOP
        IF NOT locks[place] THEN
            fences[place] := -1;
        ELSIF made IS NULL OR keys[place] <> ALL (made) THEN
            fences[place] := 0;
            replies := replies || row_to_json({acquire}(clock, NULL, keys[place], owners[place], ttls[place],
                abouts[place], askers[place], 0, '', false, false));
        END IF;
    END LOOP;
    others := array_to_json(replies)::text;
END
$$;

-- The commonest batch: many tasks release keys and take keys, all of them plainly. Releases the old keys, then takes
-- the new ones; no key is twice among the old, or twice among the new. old_fences are those of the holds that are
-- released. What is to be taken is busy if any of the old keys is. `fences` and `others` are as above, and its plans
-- are made once as well.
-- outcomes: a digit per old key, as release answers in `fence`, or b for busy
CREATE FUNCTION {exchange}(
    clock bigint, old_keys text[], old_owners text[], old_fences bigint[], new_keys text[], new_owners text[],
    ttls bigint[], abouts text[], askers text[], OUT outcomes text, OUT fences bigint[], OUT others text
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
DECLARE
    locks  boolean[];
    moment bigint;
    freed  text[];
BEGIN
    outcomes := '';
    IF old_keys IS NOT NULL THEN
        SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO locks FROM unnest(old_keys) k;
        moment := {moment}(clock);
        WITH plain AS (
            DELETE FROM {entries} e USING unnest(old_keys, old_owners, old_fences, locks) AS asked (k, who, under, locked)
            WHERE asked.locked AND e.key = asked.k AND e.owner = asked.who AND e.state = 'h' AND e.until > moment
                AND asked.under IN (0, e.fence) AND e.waiters IS NULL AND e.gone IS NULL
            RETURNING e.key
        )
        SELECT array_agg(key) INTO freed FROM plain;
        IF cardinality(freed) = cardinality(old_keys) THEN
            outcomes := repeat('1', cardinality(old_keys));
        ELSE
            FOR place IN 1 .. cardinality(old_keys) LOOP
                outcomes := outcomes || CASE
                    WHEN NOT locks[place] THEN 'b'
                    WHEN old_keys[place] = ANY (freed) THEN '1'
                    ELSE ({release}(clock, NULL, old_keys[place], old_owners[place], false, 0, 0, old_fences[place])).fence::text
                END;
            END LOOP;
        END IF;
    END IF;
    IF new_keys IS NULL THEN
        RETURN;
    ELSIF locks IS NULL OR true = ALL (locks) THEN
        SELECT x.fences, x.others INTO fences, others
        FROM {acquire_many}(clock, new_keys, new_owners, ttls, abouts, askers) x;
    ELSE
        fences := array_fill(-1::bigint, ARRAY[cardinality(new_keys)]);
    END IF;
END
$$;

-- A key that is passed on: released by one and taken by the next in line, plainly, in one call and one change of its
-- row.
-- The fence under which the next has it; NULL if the key is busy; else, as it is in any other case, how the release and
-- the acquire went, one after the other, as JSON: outcome and granted, as they answer. old_fence: 0 if not known.
CREATE FUNCTION {handover}(
    clock bigint, k text, old_owner text, old_fence bigint, who text, ttl bigint, about text, asker text
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment  bigint;
    granted text;
    outcome bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock({lock_id}(k)) THEN
        RETURN NULL;
    END IF;
    moment := {moment}(clock);
    UPDATE {entries} e
    SET owner = who, fence = {next_fences}(moment, 1), until = moment + ttl, delay = 0, opens = 0, kept = 0, attempts = 1,
        refused = 0, fingerprint = '', info = about
    WHERE e.key = k AND e.owner = old_owner AND e.state = 'h' AND e.until > moment AND old_fence IN (0, e.fence)
        AND e.waiters IS NULL AND e.gone IS NULL AND e.value IS NULL
    RETURNING e.fence INTO granted;
    IF FOUND THEN
        RETURN granted;
    END IF;
    outcome := ({release}(clock, NULL, k, old_owner, false, 0, 0, old_fence)).fence;
    granted := {acquire_plain}(clock, NULL, k, who, ttl, about, asker);
    RETURN json_build_object('outcome', outcome, 'granted', granted);
END
$$;

-- A page of entries in key order, as anybody may see them.
CREATE FUNCTION {page}(clock bigint, prefix text, after text, most integer)
RETURNS TABLE (
    key text, state "char", fence bigint, remaining bigint, mine boolean, attempts integer, refused integer,
    waiters integer, fingerprint text, info text, value bytea, gone text
) LANGUAGE sql VOLATILE SET jit = off AS $$
    SELECT e.key, v.*
    FROM {entries} e, LATERAL {view}(e, {moment}(clock), '', true) v
    WHERE e.key >= prefix AND e.key > after AND e.key <= prefix || repeat(chr(1114111), 160) -- the greatest suffix
        AND starts_with(e.key, prefix) AND (v.state <> 'f' OR v.fence <> 0)
    ORDER BY e.key LIMIT most
$$;

-- Forgets what answers nothing more among the next rows after a key, and old hits; answers the last key looked at, or
-- NULL at the end. Never needed for a right answer. Skips what another transaction decides on.
CREATE FUNCTION {sweep}(clock bigint, after text, most integer) RETURNS text LANGUAGE plpgsql VOLATILE
SET jit = off AS $$
DECLARE
    moment bigint := {moment}(clock);
    last   text;
    found_useless text[];
BEGIN
    WITH stretch AS MATERIALIZED (
        SELECT e.key, {useless}(e, moment) AS is_useless FROM {entries} e WHERE e.key > after ORDER BY e.key LIMIT most
    )
    SELECT CASE WHEN count(*) = most THEN max(key) END, array_agg(key) FILTER (WHERE is_useless)
    INTO last, found_useless FROM stretch;
    IF found_useless IS NOT NULL THEN
        SELECT array_agg(k) INTO found_useless FROM unnest(found_useless) k
        WHERE pg_try_advisory_xact_lock({lock_id}(k));
        DELETE FROM {entries} e WHERE e.key = ANY (found_useless) AND {useless}(e, moment);
    END IF;
    DELETE FROM {hits} h WHERE (h.key, h.owner) IN (
        SELECT old.key, old.owner FROM {hits} old
        WHERE old.until <= moment - 3600000000 -- an hour beyond its window, in case the next Hit has a longer one
        ORDER BY old.until LIMIT most FOR UPDATE SKIP LOCKED
    );
    RETURN last;
END
$$;

-- Behind a pooler a connection outlives the server: it may lead to another one from one transaction to the next.
-- True in this life of the server, as `server_state` in queries.sql answers it; in any other an error, before anything
-- is done: the schema is to be checked anew in each life of the server.
CREATE FUNCTION {same_life}(known text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known IS DISTINCT FROM (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text || ' '
        || coalesce(to_regclass({fence_name})::oid::text, '')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SL001', MESSAGE = 'its schema is not known to be up to date';
    END IF;
    RETURN true;
END
$$;
