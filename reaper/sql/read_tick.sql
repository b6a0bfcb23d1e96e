-- Reads the last tick and how long ago it was, by the database's clock.
--
-- Parameters: none
-- Returns one row (started_seconds_ago, finished_seconds_ago, released, retried, dead_lettered,
--   skipped, deferred, ticks); the first two are NULL before the first tick.
-- Locks: none. Index: none needed, one row.
SELECT
    extract(epoch FROM clock_timestamp() - nullif(t.started_at, '-infinity'))::double precision,
    extract(epoch FROM clock_timestamp() - t.finished_at)::double precision,
    t.released,
    t.retried,
    t.dead_lettered,
    t.skipped,
    t.deferred,
    t.ticks
FROM reaper.ticks AS t
