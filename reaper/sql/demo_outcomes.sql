-- Reads every job of the demo's database with what became of it and of its hook.
--
-- Reads only, so it is safe at any time. Meant for the demo's handful of jobs: it reads whole tables.
--
-- Parameters: none.
-- Returns one row per job, oldest first (job_id, job_type, status, attempt, max_attempts, worker_id,
--   is_expired: leased and past its time, reaped: leases taken back, retried: times put back into the
--   queue, has_dead_letter, hook_state, hook_error; the last two NULL where no hook is owed).
-- Locks: none. Index: terminal_hooks_job, the attempts' unique key.
SELECT
    q.id::text AS job_id,
    q.job_type,
    q.status::text AS status,
    q.attempt,
    q.max_attempts,
    q.worker_id,
    coalesce(q.status = 'LEASED' AND q.lease_expires_at < now(), false) AS is_expired,
    (
        SELECT count(*)
        FROM job_attempts AS a
        WHERE a.job_id = q.id
            AND a.outcome = 'LEASE_EXPIRED'
    ) AS reaped,
    (
        SELECT count(*)
        FROM job_attempts AS a
        WHERE a.job_id = q.id
            AND a.outcome = 'LEASE_EXPIRED'
            AND a.retry_delay_ms IS NOT NULL
    ) AS retried,
    EXISTS (
        SELECT FROM job_dead_letters AS d
        WHERE d.job_id = q.id
    ) AS has_dead_letter,
    h.state AS hook_state,
    h.error AS hook_error
FROM job_queue AS q
LEFT JOIN reaper.terminal_hooks AS h
    ON h.job_id = q.id::text
    AND h.run_number = q.run_number
    AND h.attempt = q.attempt
ORDER BY q.created_at, q.id
