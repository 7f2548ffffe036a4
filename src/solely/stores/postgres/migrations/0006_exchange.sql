-- The commonest batch: many tasks let go of keys and take keys, all of them plainly, in one statement for each of the
-- two instead of one for each op.

-- Lets go of the old keys, then takes the new ones; no key stands twice among the old, or twice among the new.
-- outcomes: a digit per old key, as release answers in `fence`, or b for busy
-- fences: one per new key that was granted; 0 for one that was refused, -1 for busy
-- others: the replies to those that were refused, in their order, as a JSON array; NULL if there are none
-- Its plans are made once: anew for each call they would take longer than the call. And one that reads the whole table,
-- which is right while that is small, would be kept when it has grown, so there is none.
CREATE FUNCTION {exchange}(
    clock bigint, old_keys text[], old_owners text[], new_keys text[], new_owners text[], ttls bigint[], abouts text[],
    askers text[], OUT outcomes text, OUT fences bigint[], OUT others text
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    old_locks boolean[];
    new_locks boolean[];
    moment    bigint;
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
    SELECT array_agg(nextval({fence_name})) INTO fences FROM unnest(new_keys);
    WITH granted AS (
        INSERT INTO {entries} (key, state, owner, fence, until, attempts, info)
        SELECT asked.k, 'h', asked.who, asked.fence, moment + asked.ttl, 1, asked.about
        FROM unnest(new_keys, new_owners, fences, ttls, abouts, new_locks) AS asked (k, who, fence, ttl, about, locked)
        WHERE asked.locked
        ON CONFLICT (key) DO NOTHING RETURNING key
    )
    SELECT array_agg(key) INTO made FROM granted;
    IF cardinality(made) = cardinality(new_keys) THEN
        RETURN;
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
