-- A caller's transaction above READ COMMITTED (see within.py): its snapshot may be older than the lock of a key. Then a
-- row that was deleted since is still visible there, and beside it the one that is inserted in its place.

-- As in 0003, but raises serialization_failure if the mark takes the place of a row that is in the snapshot.
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
    INSERT INTO {entries} (key, state, owner, fence, until)
    VALUES (k, 'd', who, nextval({fence_name}), moment + ttl)
    ON CONFLICT (key) DO NOTHING;
    IF FOUND THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            PERFORM FROM {entries} e WHERE e.key = k FOR UPDATE;
        END IF;
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

-- As in 0005, but key by key above READ COMMITTED: no row is then read that is not known to be the only one of its key.
-- One digit per key: 1 first, 0 seen, b busy.
CREATE OR REPLACE FUNCTION {mark_many}(clock bigint, ks text[], who text, ttl bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    locks   boolean[];
    moment  bigint;
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

-- Looks without a lock: one row of one snapshot is the entry as it was at one moment; of two, the later one is ours.
CREATE OR REPLACE FUNCTION {read}(clock bigint, patience integer, k text) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
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
