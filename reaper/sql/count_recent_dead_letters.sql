-- Counts the dead letters of the last day by type, and those of the last hour among them.
--
-- Parameters: none
-- Returns rows (job_type, last_hour, last_day), the most first.
-- Locks: none. Index: job_dead_letters_failed_at.
SELECT
    l.job_type,
    count(*) FILTER (WHERE l.failed_at > now() - interval '1 hour'),
    count(*)
FROM job_dead_letters AS l
WHERE l.failed_at > now() - interval '1 day'
GROUP BY l.job_type
ORDER BY count(*) DESC, l.job_type
