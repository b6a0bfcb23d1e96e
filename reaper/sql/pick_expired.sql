-- Locks up to `batch_size` expired leases and lists them: the first step of isolating poison rows.
--
-- Runs only after a batch failed on a row's own contents, inside a longer transaction, so that the
-- reap of halves that follows meets the same rows. Changes nothing; safe to repeat.
--
-- Parameters
--   batch_size  how many leases, 1..10000
--   scan_from   oldest lease expiry to look at (text)
-- Returns rows (job_id, run_number, attempt, lease_expires_at as text, job_type), oldest
-- expiry first.
-- Locks: job_queue rows (SKIP LOCKED).
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
SELECT
    q.id::text,
    q.run_number,
    q.attempt,
    q.lease_expires_at::text,
    q.job_type
FROM job_queue AS q
WHERE q.status = 'LEASED'
    AND q.lease_expires_at < now()
    AND q.lease_expires_at >= %(scan_from)s::timestamptz
    AND q.workflow_step_id IS NULL
    AND NOT EXISTS (
        SELECT
        FROM reaper.deferred AS d
        WHERE d.job_id = q.id::text
            AND d.run_number = q.run_number
            AND d.attempt = q.attempt
            AND d.until > now()
        OFFSET 0  -- kept a filter: as a join it would sort all expired leases for each batch
    )
ORDER BY q.lease_expires_at
LIMIT %(batch_size)s
FOR UPDATE OF q SKIP LOCKED
