-- Limits and queues: one function per op, as in 0003.

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
    r := {let_go}(r);
    r.value := body;
    r.fence := nextval({fence_name});
    r.attempts := 0;
    r.offered_client := NULL;
    r.offered_owner := NULL;
    r.opens := moment + closing;
    PERFORM {save}(r, moment);
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

-- fence: 1 gone from the queue, 0 another owner has it
CREATE FUNCTION {ack}(clock bigint, patience integer, k text, who text)
RETURNS {reply} LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a {reply};
BEGIN
    IF NOT (pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, patience)) THEN
        a.state := 'b';
        RETURN a;
    END IF;
    DELETE FROM {entries} e WHERE e.key = k AND e.queue IS NOT NULL AND e.taker = who;
    a.fence := (FOUND OR NOT EXISTS (SELECT FROM {entries} e WHERE e.key = k AND e.queue IS NOT NULL))::integer;
    RETURN a;
END
$$;

-- fence: 1 back in the queue, 0 this owner does not have it
CREATE FUNCTION {give_back}(clock bigint, patience integer, k text, who text, closing bigint)
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
    SET state = 'f', owner = '', until = 0, taker = NULL, opens = moment + closing, available = moment + closing
    WHERE e.key = k AND e.queue IS NOT NULL AND e.taker = who;
    a.fence := FOUND::integer;
    RETURN a;
END
$$;
