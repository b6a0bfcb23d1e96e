-- Finds the job type that is leased for the shortest time now, measured from its last sign of life.
--
-- Parameters
--   row_limit  how many of the leases that end last to look at
-- Returns one row (job_type, lease_seconds), or none where nothing is leased.
-- Locks: none. Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
SELECT
    l.job_type,
    extract(epoch FROM l.lease_expires_at - l.last_heartbeat_at)::double precision
FROM (
    SELECT
        q.job_type,
        q.lease_expires_at,
        q.last_heartbeat_at
    FROM job_queue AS q
    WHERE q.status = 'LEASED'
        AND q.lease_expires_at > now()
        AND q.lease_expires_at < 'infinity'
    ORDER BY q.lease_expires_at DESC
    LIMIT %(row_limit)s
) AS l
WHERE l.last_heartbeat_at < l.lease_expires_at
ORDER BY l.lease_expires_at - l.last_heartbeat_at
LIMIT 1
