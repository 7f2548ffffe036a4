-- Every statement that the store sends, by name. Names in braces are configured by the URL.
-- $1 is the injected clock of tests in µs, else NULL; $2 how many ms to wait for a busy key, or NULL to be answered so.

-- name: acquire
SELECT * FROM {acquire}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::text, $7::text, $8::bigint,
    $9::text, $10::boolean, $11::boolean)

-- name: acquire_plain
SELECT {acquire_plain}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::text, $7::text)

-- name: renew
SELECT * FROM {renew}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint)

-- name: resume
SELECT * FROM {resume}($1::bigint, $2::integer, $3::text, $4::text, $5::text, $6::bigint, $7::text)

-- name: finish
SELECT * FROM {finish}($1::bigint, $2::integer, $3::text, $4::text, $5::bytea, $6::bigint)

-- name: release
SELECT ({release}($1::bigint, $2::integer, $3::text, $4::text, $5::boolean, $6::bigint, $7::bigint, $8::bigint)).fence

-- name: release_lightly
-- A plain release, in a transaction of its own that does not wait for the disk: should the server crash in the next
-- moments, the key is held until its ttl. Whoever acquires it next waits for the disk, and this is written before that.
SELECT ({release}($1::bigint, $2::integer, $3::text, $4::text, false, 0, 0, $5::bigint)).fence
FROM set_config('synchronous_commit', 'off', true)

-- name: mark
SELECT ({mark}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint)).fence

-- name: mark_longer
SELECT ({mark_longer}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint)).fence

-- name: read
SELECT * FROM {read}($1::bigint, $2::integer, $3::text)

-- name: clear
SELECT ({clear}($1::bigint, $2::integer, $3::text, $4::bigint)).fence

-- name: advance
SELECT * FROM {advance}($1::bigint, $2::integer, $3::text, $4::bytea)

-- name: hit
SELECT * FROM {hit}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::bigint)

-- name: unhit
SELECT ({unhit}($1::bigint, $2::integer, $3::text, $4::text)).fence

-- name: push
SELECT ({push}($1::bigint, $2::integer, $3::text, $4::bytea, $5::bigint)).fence

-- name: take
SELECT * FROM {take}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::text)

-- name: take_or_wait
SELECT * FROM {take_or_wait}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::text, $7::text)

-- name: ack
SELECT ({ack}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint)).fence

-- name: give_back
SELECT ({give_back}($1::bigint, $2::integer, $3::text, $4::text, $5::bigint, $6::boolean)).fence

-- name: amend
SELECT ({amend}($1::bigint, $2::integer, $3::text, $4::bytea, $5::bytea)).fence

-- name: count
SELECT ({count}($1::bigint, $2::integer, $3::text)).fence

-- name: perform
SELECT * FROM {perform}($1::bigint, $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::text[], $9::text[], $10::text[], $11::bytea[])

-- name: perform_in_turn
-- $2 a key that is waited for, $3 ms, before any is locked: so nobody waits who keeps others waiting.
SELECT performed.*
FROM (SELECT pg_try_advisory_xact_lock({lock_id}($2::text)) OR {waited}($2::text, $3::integer) AS locked) turn,
    LATERAL {perform}(CASE WHEN turn.locked THEN $1::bigint END, $4::text[], $5::text[], $6::text[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bytea[]) performed

-- name: exchange
SELECT * FROM {exchange}($1::bigint, $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[],
    $8::text[], $9::text[])

-- name: handover
SELECT {handover}($1::bigint, $2::text, $3::text, $4::bigint, $5::text, $6::bigint, $7::text, $8::text)

-- name: mark_many
SELECT {mark_many}($1::bigint, $2::text[], $3::text, $4::bigint)

-- name: page
SELECT * FROM {page}($1::bigint, $2::text, $3::text, $4::integer)

-- name: sweep
SELECT {sweep}($1::bigint, $2::text, $3::integer)

-- name: server_state
-- The life of the server: it begins with its start, and with the sequence, should a dump have been restored.
SELECT pg_is_in_recovery()::text, current_setting('default_transaction_read_only'),
    (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text || ' ' || coalesce(to_regclass({fence_name})::oid::text, ''),
    coalesce(to_regclass({migrations_name})::text, ''), current_setting('transaction_isolation'), current_setting('server_encoding'),
    pg_backend_pid()::text

-- name: backend
SELECT pg_backend_pid()::text

-- name: migrated
SELECT coalesce(max(number), 0)::text FROM {migrations}

-- name: begin_migration
BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({migration_lock})

-- name: find_schema
-- Sent once the lock is granted, and read from the table: to_regnamespace() may answer what this connection, which may
-- be a pooled one, remembers from before another process made the schema.
SELECT FROM pg_namespace WHERE nspname = {schema_name}

-- name: find_migrations
-- As find_schema. The connection then does not remember that there is none, as it does after to_regclass().
SELECT FROM pg_class
WHERE relname = {migrations_bare} AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name})

-- name: create_schema
-- A store of another table and the data of the applications may make the same schema at this moment, under locks of
-- their own: then this waits for their commit, and the schema is there.
DO $$ BEGIN CREATE SCHEMA {schema}; EXCEPTION WHEN duplicate_schema OR unique_violation THEN NULL; END $$

-- name: create_migrations
CREATE TABLE IF NOT EXISTS {migrations} (
    number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now()
)

-- name: record_migration
INSERT INTO {migrations} (number, name) VALUES ($1::integer, $2::text)

-- name: check
SELECT current_setting('server_version'), current_setting('server_version_num'), pg_is_in_recovery()::text,
    date_part('epoch', clock_timestamp())::text, (SELECT last_value::text FROM {fence}),
    current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
    (SELECT max(number)::text FROM {migrations}), current_setting('max_locks_per_transaction')

-- name: lock_all
-- $1 keys in the order of their locks, $2 patience
SELECT pg_try_advisory_xact_lock({lock_id}(k)) OR {waited}(k, $2::integer) FROM unnest($1::text[]) k
