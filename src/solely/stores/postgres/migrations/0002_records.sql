-- How a key is locked, and how a record is read, judged, shown and written. Says what stores/transitions.py says.
-- r is a record, moment is now in µs, k a key, who an owner.

-- What every op answers; unused fields are NULL.
--   state: f free, h held, d done, c closed; b busy: not performed, since another transaction decides on this key
--   remaining: µs, -1 for ever
-- An op that does not answer an entry tells its answer as a number in `fence`.
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

CREATE FUNCTION {over}(r {entries}, moment bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT r.state = 'f' OR (r.until <> 0 AND moment >= r.until)
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

-- The memory of displaced owners with one more; the last 128 are remembered.
CREATE FUNCTION {displace}(gone {displaced}[], who text, under bigint, how text, moment bigint)
RETURNS {displaced}[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    kept {displaced}[];
BEGIN
    kept := ARRAY(SELECT d FROM unnest(gone) d WHERE d.until > moment AND (d.owner <> who OR who = ''));
    kept := kept || ROW(who, under, how, moment + 60000000)::{displaced};
    RETURN kept[greatest(1, cardinality(kept) - 127):];
END
$$;

CREATE FUNCTION {let_go}(r {entries}) RETURNS {entries} LANGUAGE plpgsql IMMUTABLE AS $$
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

-- Offers a key that was just let go to the first waiter for 20 ms, and tells only that one.
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
