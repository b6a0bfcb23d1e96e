-- Counts leases: live, expired, set aside, and the age of the oldest expired one.
--
-- Poison rows that were set aside and rows of a workflow step are no work of the reap: they count
-- apart, so that the oldest lease says whether the reaper keeps up.
--
-- Parameters: none
-- Returns one row (live, expired, oldest_expired_seconds or NULL, deferred).
-- Locks: none. Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
WITH expired AS (
    SELECT q.lease_expires_at
    FROM job_queue AS q
    WHERE q.status = 'LEASED'
        AND q.lease_expires_at < now()
        AND q.workflow_step_id IS NULL
        AND NOT EXISTS (
            SELECT
            FROM reaper.deferred AS d
            WHERE d.job_id = q.id::text
                AND d.run_number = q.run_number
                AND d.attempt = q.attempt
        )
)

SELECT
    (
        SELECT count(*)
        FROM job_queue AS q
        WHERE q.status = 'LEASED'
            AND q.lease_expires_at >= now()
    ),
    count(*),
    extract(epoch FROM now() - nullif(min(e.lease_expires_at), '-infinity'))::double precision,
    (SELECT count(*) FROM reaper.deferred)
FROM expired AS e
