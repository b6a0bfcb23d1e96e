-- Lists the job types that are throttled because their hooks time out.
--
-- Parameters
--   throttle_after  timeouts in a row from which a type is throttled
-- Returns rows (job_type, timeouts_in_row), ordered.
-- Locks: none. Index: hook_types_pkey, a row per type that ever timed out.
SELECT
    t.job_type,
    t.timeouts_in_row
FROM reaper.hook_types AS t
WHERE t.timeouts_in_row >= %(throttle_after)s
ORDER BY t.job_type
