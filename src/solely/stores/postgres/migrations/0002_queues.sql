-- Queues: clients wait in line for an item; an item is amended in one step, given back without an attempt, and counted.
--
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
    r.value := body;
    IF body IS NULL THEN
        r := {set_free}(r);
        r.opens := 0;
        r.attempts := 0;
    END IF;
    PERFORM {save}(r, moment);
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

-- For clients of an earlier version.
CREATE OR REPLACE FUNCTION {give_back}(clock bigint, patience integer, k text, who text, closing bigint)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN {give_back}(clock, patience, k, who, closing, false);
END
$$;

-- fence: the items of the queue, taken or not
CREATE FUNCTION {count}(clock bigint, patience integer, q text) RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
BEGIN
    SELECT count(*) INTO a.fence FROM {entries} e WHERE e.queue = q;
    RETURN a;
END
$$;

-- Performs a batch in order; one reply per op. Each array has one element per op, or is NULL where all are NULL.
-- What an op does not use is NULL; `number` is a fence, a limit, or flags: see codec.py.
-- An op on a key that is busy is answered so, and so are the later ones of that key: their order stays.
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
