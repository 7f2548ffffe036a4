-- Behind a pooler a connection outlives the server: it may lead to another one from one transaction to the next.

-- True in this life of the server, as `greet` in queries.sql tells it; in any other an error, before anything is done.
CREATE FUNCTION {same_life}(known text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known IS DISTINCT FROM (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text || ' '
        || coalesce(to_regclass({fence_name})::oid::text, '')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SL001', MESSAGE = 'its fences are not known to be above all earlier ones';
    END IF;
    RETURN true;
END
$$;
