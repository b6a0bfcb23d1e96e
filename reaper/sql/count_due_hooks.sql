-- Counts the owed hooks whose doorbell should have been answered by now, up to `count_limit`.
--
-- Parameters
--   throttle_after  timeouts in a row from which a type is throttled
--   count_limit     stop counting here
-- Returns one row (due).
-- Locks: none. Index: terminal_hooks_pending.
SELECT count(*)
FROM (
    SELECT
    FROM reaper.terminal_hooks AS h
    WHERE h.state = 'pending'
        AND h.due_at < clock_timestamp()
        AND NOT EXISTS (
            SELECT
            FROM reaper.hook_types AS t
            WHERE t.job_type = h.job_type
                AND t.timeouts_in_row >= %(throttle_after)s
        )
    LIMIT %(count_limit)s
) AS found
