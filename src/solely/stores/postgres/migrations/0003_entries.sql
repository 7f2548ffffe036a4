-- Every op on an entry. Each function is one op: it locks its key, reads the clock, decides and writes.
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
    INSERT INTO {entries} (key, state, owner, fence, until, delay, attempts, fingerprint, info)
    VALUES (k, 'h', who, nextval({fence_name}), moment + ttl, closing, 1, print, about)
    ON CONFLICT (key) DO NOTHING RETURNING fence INTO a.fence;
    IF FOUND THEN
        a.state := 'h';
        a.remaining := ttl;
        a.mine := true;
        a.attempts := 1;
        a.fingerprint := print;
        a.info := about;
        RETURN a;
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
    r.fence := nextval({fence_name});
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
    granted bigint;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {entries} (key, state, owner, fence, until, attempts, info)
    VALUES (k, 'h', who, nextval({fence_name}), {moment}(clock) + ttl, 1, about)
    ON CONFLICT (key) DO NOTHING RETURNING fence INTO granted;
    IF FOUND THEN
        RETURN granted;
    END IF;
    RETURN row_to_json({acquire}(clock, patience, k, who, ttl, about, asker, 0, '', false, false));
END
$$;

-- A client stands in the queue once; a newer attempt of it keeps its place.
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

-- fence: 1 released, 2 expired, 3 cleared
CREATE FUNCTION {release}(
    clock bigint, patience integer, k text, who text, revoke boolean, closing bigint, keep bigint
) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      {reply};
    r      {entries};
    was    {entries};
    moment bigint;
    why    text;
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    moment := {moment}(clock);
    a.fence := 1;
    IF NOT revoke AND closing = 0 AND keep = 0 THEN
        DELETE FROM {entries} e
        WHERE e.key = k AND e.owner = who AND e.state = 'h' AND e.until > moment
            AND e.waiters IS NULL AND e.gone IS NULL;
        IF FOUND THEN
            RETURN a;
        END IF;
    END IF;

    r := {load}(k, moment);
    was := r;
    why := {how}(r, who, moment);
    IF r.state = 'h' AND r.owner = who THEN
        IF why <> '' THEN
            r.gone := {displace}(r.gone, who, r.fence, 'expired', moment);
            r.opens := r.until + r.delay;
            r.kept := moment + 60000000;
        ELSE
            r.opens := moment + closing;
            r.kept := moment + keep;
        END IF;
        r := {let_go}(r);
        r.value := NULL;
        IF r.opens <= moment THEN
            r := {offer}(r, moment);
        END IF;
    ELSIF r.state = 'd' AND r.owner = who AND r.value IS NULL THEN
        r := {let_go}(r);
    ELSIF r.offered_owner = who AND moment < r.opens THEN
        r := {offer}(r, moment);
    END IF;
    IF r.waiters IS NOT NULL THEN
        SELECT array_agg(w) INTO r.waiters FROM unnest(r.waiters) w WHERE w.owner <> who;
    END IF;
    IF revoke AND why = '' THEN
        r.gone := {displace}(r.gone, who, 0, 'revoked', moment);
    END IF;
    IF r IS DISTINCT FROM was THEN
        PERFORM {save}(r, moment);
    END IF;
    a.fence := CASE why WHEN 'expired' THEN 2 WHEN 'cleared' THEN 3 ELSE 1 END;
    RETURN a;
END
$$;

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
    INSERT INTO {entries} (key, state, owner, fence, until)
    VALUES (k, 'd', who, nextval({fence_name}), moment + ttl)
    ON CONFLICT (key) DO NOTHING;
    IF FOUND THEN
        RETURN a;
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
    r := {let_go}(r);
    r.state := 'd';
    r.owner := who;
    r.fence := nextval({fence_name});
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

-- Looks without a lock: one row of one snapshot is the entry as it was at one moment.
CREATE FUNCTION {read}(clock bigint, patience integer, k text) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
    r {entries};
BEGIN
    SELECT * INTO r FROM {entries} e WHERE e.key = k;
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
    r := {let_go}(r);
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
        r := {let_go}(r);
        r.state := 'd';
        r.value := body;
        r.fence := nextval({fence_name});
        PERFORM {save}(r, moment);
    END IF;
    RETURN {view}(r, moment, '', true);
END
$$;
