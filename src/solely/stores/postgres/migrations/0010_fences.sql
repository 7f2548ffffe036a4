-- Fences that follow the clock: max(last + 1, the clock in µs), given by one function to all that give one.

-- The first of so many fences: greater than all before it, and not behind the clock.
-- The sequence keeps the last one, through rollbacks as well. Whoever moves it holds the lock of the fences for these
-- steps only, not until the transaction ends: the exception undoes the block, and so lets go of the lock, while setval()
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

-- As in 0005 to clients that were made before this migration; nothing is left to be raised.
CREATE OR REPLACE FUNCTION {raise_fences}(life_now text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
END
$$;

DROP TABLE {server};

-- As in 0009: what is to be looked at anew in each life of the server is its schema.
CREATE OR REPLACE FUNCTION {same_life}(known text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known IS DISTINCT FROM (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text || ' '
        || coalesce(to_regclass({fence_name})::oid::text, '')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SL001', MESSAGE = 'its schema is not known to be up to date';
    END IF;
    RETURN true;
END
$$;

-- True if a row with this key, which is locked, may be inserted: whoever would be refused takes no fence, and so writes
-- nothing. Above READ COMMITTED the snapshot may be older than the lock, and only the insert itself can tell.
CREATE FUNCTION {absent}(k text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN current_setting('transaction_isolation') <> 'read committed'
        OR NOT EXISTS (SELECT FROM {entries} e WHERE e.key = k);
END
$$;

-- Below, every function that gives a fence, as it was but for that.

CREATE OR REPLACE FUNCTION {acquire}(
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
CREATE OR REPLACE FUNCTION {acquire_plain}(
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

-- Raises serialization_failure if the mark takes the place of a row that is in the snapshot.
-- fence: 1 first, 0 seen
CREATE OR REPLACE FUNCTION {mark}(clock bigint, patience integer, k text, who text, ttl bigint)
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
    r := {let_go}(r);
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

CREATE OR REPLACE FUNCTION {advance}(clock bigint, patience integer, k text, body bytea)
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
        r.fence := {next_fences}(moment, 1);
        PERFORM {save}(r, moment);
    END IF;
    RETURN {view}(r, moment, '', true);
END
$$;

-- fence: 1 put in, 0 there already
CREATE OR REPLACE FUNCTION {push}(clock bigint, patience integer, k text, body bytea, closing bigint)
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
    r := {let_go}(r);
    r.value := body;
    r.fence := {next_fences}(moment, 1);
    r.attempts := 0;
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := moment + closing;
    PERFORM {save}(r, moment);
    a.fence := 1;
    RETURN a;
END
$$;

-- The fence under which the next has it; NULL if the key is busy; else, as it is in any other case, how the release and
-- the acquire went, one after the other, as JSON: outcome and granted, as they answer.
CREATE OR REPLACE FUNCTION {handover}(
    clock bigint, k text, old_owner text, who text, ttl bigint, about text, asker text
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
    WHERE e.key = k AND e.owner = old_owner AND e.state = 'h' AND e.until > moment
        AND e.waiters IS NULL AND e.gone IS NULL AND e.value IS NULL
    RETURNING e.fence INTO granted;
    IF FOUND THEN
        RETURN granted;
    END IF;
    outcome := ({release}(clock, NULL, k, old_owner, false, 0, 0)).fence;
    granted := {acquire_plain}(clock, NULL, k, who, ttl, about, asker);
    RETURN json_build_object('outcome', outcome, 'granted', granted);
END
$$;

-- Key by key above READ COMMITTED: no row is then read that is not known to be the only one of its key.
-- One digit per key: 1 first, 0 seen, b busy.
CREATE OR REPLACE FUNCTION {mark_many}(clock bigint, ks text[], who text, ttl bigint)
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

-- Lets go of the old keys, then takes the new ones; no key stands twice among the old, or twice among the new.
-- outcomes: a digit per old key, as release answers in `fence`, or b for busy
-- fences: one per new key that was granted; 0 for one that was refused, -1 for busy
-- others: the replies to those that were refused, in their order, as a JSON array; NULL if there are none
-- Its plans are made once: anew for each call they would take longer than the call. And one that reads the whole table,
-- which is right while that is small, would be kept when it has grown, so there is none.
CREATE OR REPLACE FUNCTION {exchange}(
    clock bigint, old_keys text[], old_owners text[], new_keys text[], new_owners text[], ttls bigint[], abouts text[],
    askers text[], OUT outcomes text, OUT fences bigint[], OUT others text
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    old_locks boolean[];
    new_locks boolean[];
    moment    bigint;
    first     bigint;
    made      text[];
    done      bigint := 0;
    replies   json[];
BEGIN
    outcomes := '';
    SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO old_locks FROM unnest(old_keys) k;
    SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO new_locks FROM unnest(new_keys) k;
    moment := {moment}(clock);
    IF old_keys IS NOT NULL THEN
        DELETE FROM {entries} e USING unnest(old_keys, old_owners, old_locks) AS asked (k, who, locked)
        WHERE asked.locked AND e.key = asked.k AND e.owner = asked.who AND e.state = 'h' AND e.until > moment
            AND e.waiters IS NULL AND e.gone IS NULL;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done = cardinality(old_keys) THEN
            outcomes := repeat('1', cardinality(old_keys));
        ELSE
            FOR place IN 1 .. cardinality(old_keys) LOOP
                IF old_locks[place] THEN  -- one that was let go of just now is answered the same again
                    outcomes := outcomes || ({release}(clock, NULL, old_keys[place], old_owners[place], false, 0, 0)).fence;
                ELSE
                    outcomes := outcomes || 'b';
                END IF;
            END LOOP;
        END IF;
    END IF;
    IF new_keys IS NULL THEN
        RETURN;
    END IF;
    IF NOT (true = ALL (old_locks)) THEN  -- what is taken after a release that was busy is busy as well
        FOR place IN 1 .. cardinality(new_keys) LOOP
            IF NOT coalesce(old_locks[array_position(old_keys, new_keys[place])], true) THEN
                new_locks[place] := false;
            END IF;
        END LOOP;
    END IF;
    fences := array_fill(0::bigint, ARRAY[cardinality(new_keys)]);
    IF EXISTS (
        SELECT FROM unnest(new_keys, new_locks) AS asked (k, locked) WHERE asked.locked AND {absent}(asked.k)
    ) THEN
        first := {next_fences}(moment, cardinality(new_keys));
        SELECT array_agg(fence) INTO fences FROM generate_series(first, first + cardinality(new_keys) - 1) fence;
        WITH granted AS (
            INSERT INTO {entries} (key, state, owner, fence, until, attempts, info)
            SELECT asked.k, 'h', asked.who, asked.fence, moment + asked.ttl, 1, asked.about
            FROM unnest(new_keys, new_owners, fences, ttls, abouts, new_locks)
                AS asked (k, who, fence, ttl, about, locked)
            WHERE asked.locked
            ON CONFLICT (key) DO NOTHING RETURNING key
        )
        SELECT array_agg(key) INTO made FROM granted;
        IF cardinality(made) = cardinality(new_keys) THEN
            RETURN;
        END IF;
    END IF;
    FOR place IN 1 .. cardinality(new_keys) LOOP
        IF NOT new_locks[place] THEN
            fences[place] := -1;
        ELSIF made IS NULL OR new_keys[place] <> ALL (made) THEN
            fences[place] := 0;
            replies := replies || row_to_json({acquire}(clock, NULL, new_keys[place], new_owners[place], ttls[place],
                abouts[place], askers[place], 0, '', false, false));
        END IF;
    END LOOP;
    others := array_to_json(replies)::text;
END
$$;
