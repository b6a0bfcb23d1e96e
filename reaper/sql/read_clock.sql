-- Reads the database's clock, and whether the server only answers reads.
--
-- Parameters: none
-- Returns one row (seconds since 1970, is_read_only).
-- Locks: none. Index: none.
SELECT
    extract(epoch FROM clock_timestamp())::double precision,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean
