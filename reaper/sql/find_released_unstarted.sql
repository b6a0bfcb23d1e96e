-- Finds jobs that were released unstarted again and again in one run: somebody takes them and dies.
--
-- Looks at the newest events only, so that its cost does not grow with the history.
--
-- Parameters
--   newest        how many of the newest events to look at
--   releases      how often is too often
--   row_limit     at most so many jobs
-- Returns rows (job_id, job_type, run_number, releases), the most first.
-- Locks: none. Index: job_events_pkey, job_queue_pkey.
SELECT
    e.job_id::text,
    q.job_type,
    e.run_number,
    count(*)
FROM job_events AS e
JOIN job_queue AS q ON q.id = e.job_id
WHERE e.id > (SELECT max(m.id) FROM job_events AS m) - %(newest)s
    AND e.event_type = 'REQUEUED'
    AND e.payload ->> 'reason' = 'LEASE_EXPIRED_BEFORE_RUNNING_PERSISTED'
    AND q.run_number = e.run_number
    AND q.status IN ('PENDING', 'LEASED')
GROUP BY e.job_id, q.job_type, e.run_number
HAVING count(*) >= %(releases)s
ORDER BY count(*) DESC, e.job_id
LIMIT %(row_limit)s
