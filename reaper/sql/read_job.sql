-- Reads what the queue says of one job now.
--
-- Parameters
--   job_id  the job
-- Returns one row (job_type, organization_id, status, run_number, attempt, max_attempts, stage,
--   worker_id, lease_expires_at, last_error_code, last_error_message, updated_at), or none.
-- Locks: none. Index: job_queue_pkey.
SELECT
    q.job_type,
    q.organization_id::text,
    q.status::text,
    q.run_number,
    q.attempt,
    q.max_attempts,
    q.stage,
    q.worker_id,
    q.lease_expires_at,
    q.last_error_code,
    q.last_error_message,
    q.updated_at
FROM job_queue AS q
WHERE q.id = %(job_id)s::uuid
