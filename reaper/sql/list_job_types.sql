-- Lists the job types that are defined or have died.
--
-- Parameters: none
-- Returns rows (job_type), ordered.
-- Locks: none. Index: job_definitions_pkey, tick_totals_pkey, hook_totals_pkey.
SELECT d.job_type
FROM job_definitions AS d
UNION
SELECT t.job_type
FROM reaper.tick_totals AS t
UNION
SELECT t.job_type
FROM reaper.hook_totals AS t
ORDER BY job_type
