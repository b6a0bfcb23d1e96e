-- Deletes finished ledger rows older than the retention, a batch of the oldest.
--
-- Never a row whose hook has not reached a final state, and none that the totals have not counted:
-- both conditions are part of the index scan. Safe to repeat and to run anywhere at once.
--
-- Parameters
--   retention_seconds  how long a finished row is kept, seconds
--   batch_size         at most so many rows
-- Returns one row (pruned).
-- Locks: ledger rows (SKIP LOCKED). Index: terminal_hooks_finished.
WITH old AS MATERIALIZED (
    SELECT h.hook_id
    FROM reaper.terminal_hooks AS h
    WHERE h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
        AND h.finished_at < now() - make_interval(secs => %(retention_seconds)s)
        AND h.finished_at <= (SELECT r.counted_until FROM reaper.hook_roll_up AS r)
    ORDER BY h.finished_at
    LIMIT %(batch_size)s
    FOR UPDATE OF h SKIP LOCKED
),

pruned AS (
    DELETE FROM reaper.terminal_hooks AS h
    USING old
    WHERE h.hook_id = old.hook_id
        AND h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
    RETURNING 1
)

SELECT count(*)
FROM pruned
