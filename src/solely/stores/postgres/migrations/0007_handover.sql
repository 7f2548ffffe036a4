-- A key that is passed on: let go of by one and taken by the next in line, plainly, in one call and one change of its row.

-- The fence under which the next has it; NULL if the key is busy; else, as it is in any other case, how the release and
-- the acquire went, one after the other, as JSON: outcome and granted, as they answer.
CREATE FUNCTION {handover}(
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
    SET owner = who, fence = nextval({fence_name}), until = moment + ttl, delay = 0, opens = 0, kept = 0, attempts = 1,
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
