-- Takes the migration's lock: of several at once, one migrates and the others then find it done.
--
-- Waits up to ten minutes for another migration, then returns to the ordinary limit for the rest.
--
-- Parameters: none.
-- Returns nothing.
-- Locks: a transaction's advisory lock. Index: none.
SET LOCAL lock_timeout = '10min';
SELECT pg_advisory_xact_lock(hashtextextended('reaper.migrate', 0));
SET LOCAL lock_timeout = '5s'
