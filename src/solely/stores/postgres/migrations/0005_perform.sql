-- Batches, and what goes on beside them.

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
            WHEN 'r' THEN
                a := {release}(clock, NULL, op.k, op.who, coalesce(op.num, 0) = 1, coalesce(op.delay, 0),
                    coalesce(op.span, 0));
            WHEN 'm' THEN a := {mark}(clock, NULL, op.k, op.who, op.span);
            WHEN 'n' THEN a := {renew}(clock, NULL, op.k, op.who, op.span);
            WHEN 'g' THEN a := {read}(clock, NULL, op.k);
            WHEN 'f' THEN a := {finish}(clock, NULL, op.k, op.who, op.body, op.span);
            WHEN 'c' THEN a := {clear}(clock, NULL, op.k, op.num);
            WHEN 'v' THEN a := {advance}(clock, NULL, op.k, op.body);
            WHEN 'h' THEN a := {hit}(clock, NULL, op.k, op.who, op.num, op.span);
            WHEN 'u' THEN a := {unhit}(clock, NULL, op.k, op.who);
            WHEN 'p' THEN a := {push}(clock, NULL, op.k, op.body, coalesce(op.delay, 0));
            WHEN 't' THEN a := {take}(clock, NULL, op.k, op.who, op.span, coalesce(op.txt, ''));
            WHEN 'k' THEN a := {ack}(clock, NULL, op.k, op.who);
            WHEN 'b' THEN a := {give_back}(clock, NULL, op.k, op.who, coalesce(op.delay, 0));
        END CASE;
        IF a.state = 'b' THEN
            busy := busy || op.k;
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- Marks many keys under one owner; one digit per key: 1 first, 0 seen, b busy.
CREATE FUNCTION {mark_many}(clock bigint, ks text[], who text, ttl bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    locks   boolean[];
    moment  bigint;
    created bigint;
    answers text;
BEGIN
    SELECT array_agg(pg_try_advisory_xact_lock({lock_id}(k))) INTO locks FROM unnest(ks) k;
    moment := {moment}(clock);
    INSERT INTO {entries} (key, state, owner, fence, until)
    SELECT asked.k, 'd', who, nextval({fence_name}), moment + ttl FROM unnest(ks, locks) AS asked (k, locked)
    WHERE asked.locked
    ON CONFLICT (key) DO NOTHING;
    GET DIAGNOSTICS created = ROW_COUNT;
    IF created = cardinality(ks) THEN
        RETURN repeat('1', cardinality(ks));
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

-- A page of entries in key order, as anybody may see them.
CREATE FUNCTION {page}(clock bigint, prefix text, after text, most integer)
RETURNS TABLE (
    key text, state "char", fence bigint, remaining bigint, mine boolean, attempts integer, refused integer,
    waiters integer, fingerprint text, info text, value bytea, gone text
) LANGUAGE sql VOLATILE AS $$
    SELECT e.key, v.*
    FROM {entries} e, LATERAL {view}(e, {moment}(clock), '', true) v
    WHERE e.key >= prefix AND e.key > after AND e.key <= prefix || repeat(chr(1114111), 160) -- the greatest suffix
        AND starts_with(e.key, prefix) AND (v.state <> 'f' OR v.fence <> 0)
    ORDER BY e.key LIMIT most
$$;

-- Forgets what answers nothing more among the next rows after a key, and old hits; answers the last key looked at, or
-- NULL at the end. Never needed for a right answer. Skips what another transaction decides on.
CREATE FUNCTION {sweep}(clock bigint, after text, most integer) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
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
        WHERE old.until <= moment - 3600000000 -- an hour beyond its window, should the next Hit ask for a longer one
        ORDER BY old.until LIMIT most FOR UPDATE SKIP LOCKED
    );
    RETURN last;
END
$$;

-- In a new life of the server (a restart, a failover, a restored backup) fences start again at the clock, so that they
-- grow even if the last of them were lost. Nobody performs an op in that life before this has been called.
CREATE FUNCTION {raise_fences}(life_now text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    life_before text;
    last        bigint;
BEGIN
    SELECT s.life INTO life_before FROM {server} s FOR UPDATE;
    IF life_before IS DISTINCT FROM life_now THEN
        SELECT last_value INTO last FROM {fence};
        IF last < {moment}(NULL) THEN
            PERFORM setval({fence_name}, {moment}(NULL));
        END IF;
        UPDATE {server} SET life = life_now;
    END IF;
END
$$;
