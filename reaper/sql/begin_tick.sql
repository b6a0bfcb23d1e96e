-- Begins a tick unless another one began less than `quiet_seconds` ago.
--
-- This is what makes a pile-up of reap messages, or several beats, cost no-ops. Safe to repeat: the
-- second one finds the first.
--
-- Parameters
--   quiet_seconds  half the interval, seconds; 0 begins in any case
-- Returns one row (started_at) if the tick may go on, none if not.
-- Locks: the one row of reaper.ticks, for this statement only.
-- Index: none needed, one row.
UPDATE reaper.ticks
SET started_at = clock_timestamp()
WHERE started_at <= clock_timestamp() - make_interval(secs => %(quiet_seconds)s)
RETURNING started_at
