-- Releases and acks that tell whether the store has lost its data since they were granted, and marks that extend. What
-- older processes call stays as it is: functions of the same name here have one argument more.

-- One row: no smaller fence than `born` was ever given since these tables were made; 0 if they are older than this row.
CREATE TABLE {birth} (
    id   boolean PRIMARY KEY DEFAULT true CHECK (id),
    born bigint NOT NULL
);
INSERT INTO {birth} (born)
SELECT CASE WHEN s.is_called THEN 0 ELSE setval({fence_name}, greatest(s.last_value, {moment}(NULL))) END FROM {fence} s;

-- True if what was given under this fence, 0 if that is not known, was given before these tables were made.
CREATE FUNCTION {is_lost}(under bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT under > 0 AND EXISTS (SELECT FROM {birth} b WHERE b.born > under)
$$;

-- As in 0003; `under` is the fence of the hold, 0 if that is not known.
-- fence: 1 released, 2 expired, 3 cleared, 4 nothing of this owner is here (never without a fence), 5 the store lost it
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
        r.gone := {displace}(r.gone, who, CASE WHEN held THEN r.fence ELSE 0 END, 'revoked', moment);
    END IF;
    IF r IS DISTINCT FROM was THEN
        PERFORM {save}(r, moment);
    END IF;
    a.fence := CASE
        WHEN why = 'expired' THEN 2
        WHEN why = 'cleared' THEN 3
        WHEN here OR under = 0 THEN 1
        WHEN why <> '' AND EXISTS (SELECT FROM unnest(was.gone) d WHERE d.owner = who AND d.fence = under) THEN 1
        WHEN {is_lost}(under) THEN 5
        ELSE 4
    END;
    RETURN a;
END
$$;

-- As in 0010; old_fences are those of the holds that are let go of. What is to be taken is busy if any of them is.
CREATE FUNCTION {exchange}(
    clock bigint, old_keys text[], old_owners text[], old_fences bigint[], new_keys text[], new_owners text[],
    ttls bigint[], abouts text[], askers text[], OUT outcomes text, OUT fences bigint[], OUT others text
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
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
        FROM {exchange}(clock, NULL, NULL, new_keys, new_owners, ttls, abouts, askers) x;
    ELSE
        fences := array_fill(-1::bigint, ARRAY[cardinality(new_keys)]);
    END IF;
END
$$;

-- As in 0010; old_fence is that of the hold that is let go of, 0 if that is not known.
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

-- As in 0004; `under` is the fence of the item, 0 if that is not known.
-- fence: 1 gone from the queue, 0 another owner has it, or the store lost it
CREATE FUNCTION {ack}(clock bigint, patience integer, k text, who text, under bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    DELETE FROM {entries} e WHERE e.key = k AND e.queue IS NOT NULL AND e.taker = who;
    a.fence := (FOUND OR NOT (
        EXISTS (SELECT FROM {entries} e WHERE e.key = k AND e.queue IS NOT NULL) OR {is_lost}(under)
    ))::integer;
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

-- As in 0005, and an l: a release of which the fence is known, in `num`; `txt` if it revokes. Of an ack, `num` is its
-- item's fence; of a mark it is 1 if that extends.
CREATE OR REPLACE FUNCTION {perform}(
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
            WHEN 'g' THEN a := {read}(clock, NULL, op.k);
            WHEN 'f' THEN a := {finish}(clock, NULL, op.k, op.who, op.body, op.span);
            WHEN 'c' THEN a := {clear}(clock, NULL, op.k, op.num);
            WHEN 'v' THEN a := {advance}(clock, NULL, op.k, op.body);
            WHEN 'h' THEN a := {hit}(clock, NULL, op.k, op.who, op.num, op.span);
            WHEN 'u' THEN a := {unhit}(clock, NULL, op.k, op.who);
            WHEN 'p' THEN a := {push}(clock, NULL, op.k, op.body, coalesce(op.delay, 0));
            WHEN 't' THEN a := {take}(clock, NULL, op.k, op.who, op.span, coalesce(op.txt, ''));
            WHEN 'k' THEN a := {ack}(clock, NULL, op.k, op.who, coalesce(op.num, 0));
            WHEN 'b' THEN a := {give_back}(clock, NULL, op.k, op.who, coalesce(op.delay, 0));
        END CASE;
        IF a.state = 'b' THEN
            busy := busy || op.k;
        END IF;
        RETURN NEXT a;
    END LOOP;
END
$$;
