-- Lists a job's last attempts, newest first.
--
-- Parameters
--   job_id     the job
--   row_limit  at most so many
-- Returns rows (run_number, attempt, worker_id, leased_at, finished_at, outcome, error_code,
--   error_message).
-- Locks: none. Index: job_attempts_job_id_run_number_attempt_key.
SELECT
    a.run_number,
    a.attempt,
    a.worker_id,
    a.leased_at,
    a.finished_at,
    a.outcome::text,
    a.error_code,
    a.error_message
FROM job_attempts AS a
WHERE a.job_id = %(job_id)s::uuid
ORDER BY a.run_number DESC, a.attempt DESC
LIMIT %(row_limit)s
