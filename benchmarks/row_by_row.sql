SELECT id, run_number, attempt, attempt >= max_attempts
FROM job_queue
WHERE status = 'LEASED' AND lease_expires_at < now()
ORDER BY lease_expires_at
LIMIT 16
FOR UPDATE SKIP LOCKED
-- next
UPDATE job_queue
SET
    status = CASE WHEN %(last)s THEN 'DEAD_LETTERED'::job_status ELSE 'PENDING'::job_status END,
    lease_expires_at = NULL,
    last_heartbeat_at = NULL,
    worker_id = NULL,
    next_run_at = CASE WHEN %(last)s THEN next_run_at ELSE now() + interval '30 seconds' END,
    finished_at = CASE WHEN %(last)s THEN now() ELSE finished_at END,
    status_reason = 'LEASE_EXPIRED',
    last_error_code = 'job.lease_expired',
    last_error_message = 'Job lease expired before completion.',
    updated_at = now()
WHERE id = %(id)s
-- next
UPDATE job_attempts
SET
    finished_at = now(),
    outcome = 'LEASE_EXPIRED',
    error_code = 'job.lease_expired',
    error_message = 'Job lease expired before completion.',
    retry_delay_ms = CASE WHEN %(last)s THEN retry_delay_ms ELSE 30000 END
WHERE job_id = %(id)s AND run_number = %(run)s AND attempt = %(attempt)s
-- next
INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
VALUES (
    %(id)s, %(run)s, %(attempt)s, 'FAILED',
    '{"kind": "LEASE_EXPIRED", "error_code": "job.lease_expired", "error_message": "Job lease expired before completion.", "started_without_renewal_heartbeat": false}',
    now()
)
-- next
INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
VALUES (
    %(id)s, %(run)s, %(attempt)s,
    CASE WHEN %(last)s THEN 'DEAD_LETTERED'::job_event_type ELSE 'RETRY_SCHEDULED' END,
    '{"kind": "LEASE_EXPIRED", "error_code": "job.lease_expired", "started_without_renewal_heartbeat": false}',
    now()
)
-- next
INSERT INTO job_dead_letters (
    job_id, job_type, organization_id, run_number, attempt, error_code, error_message,
    payload_snapshot, failed_at
)
SELECT
    id, job_type, organization_id, run_number, attempt, 'job.lease_expired',
    'Job lease expired before completion.', payload, now()
FROM job_queue
WHERE id = %(id)s AND %(last)s
-- next
INSERT INTO reaper.terminal_hooks (
    job_id, run_number, attempt, job_type, organization_id, max_attempts, payload, reason,
    failure_kind, error_code, error_message, due_at
)
SELECT
    id, run_number, attempt, job_type, organization_id, max_attempts, payload, 'LEASE_EXPIRED',
    'LEASE_EXPIRED', 'job.lease_expired', 'Job lease expired before completion.',
    now() + interval '30 seconds'
FROM job_queue
WHERE id = %(id)s AND %(last)s
