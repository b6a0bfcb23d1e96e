-- Counts the owed hooks whose doorbell should have been answered by now, up to `count_limit`.
--
-- Steps through the index from one job type to the next, so that the backlog of a throttled type
-- costs one step, however long it is.
--
-- Parameters
--   throttle_after  timeouts in a row from which a type is throttled
--   count_limit     stop counting here
-- Returns one row (due).
-- Locks: none. Index: terminal_hooks_pending; now(), not clock_timestamp(), because a volatile
-- function never bounds an index scan.
WITH RECURSIVE waiting AS (
    (
        SELECT h.job_type
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
        ORDER BY h.job_type
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT h.job_type
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
            AND h.job_type > w.job_type
        ORDER BY h.job_type
        LIMIT 1
    )
    FROM waiting AS w
    WHERE w.job_type IS NOT NULL
)

SELECT count(*)
FROM (
    SELECT
    FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
            AND h.job_type = w.job_type
            AND h.due_at < now()
        LIMIT %(count_limit)s
    ) AS due
    WHERE NOT EXISTS (
        SELECT
        FROM reaper.hook_types AS t
        WHERE t.job_type = w.job_type
            AND t.timeouts_in_row >= %(throttle_after)s
    )
    LIMIT %(count_limit)s
) AS found
