-- The floor of a drain: the rows a reap writes, by plain set statements in one transaction.
BEGIN;
CREATE TEMP TABLE picked ON COMMIT DROP AS
SELECT
    id, job_type, organization_id, run_number, attempt, max_attempts, worker_id, payload,
    checkpoint, attempt >= max_attempts AS is_last
FROM job_queue
WHERE status = 'LEASED' AND lease_expires_at < now() AND workflow_step_id IS NULL
ORDER BY lease_expires_at
FOR UPDATE SKIP LOCKED;
ANALYZE picked;
UPDATE job_queue AS q
SET
    status = CASE WHEN p.is_last THEN 'DEAD_LETTERED'::job_status ELSE 'PENDING'::job_status END,
    lease_expires_at = NULL,
    last_heartbeat_at = NULL,
    worker_id = NULL,
    next_run_at = CASE WHEN p.is_last THEN q.next_run_at ELSE now() + interval '30 seconds' END,
    finished_at = CASE WHEN p.is_last THEN now() ELSE q.finished_at END,
    status_reason = 'LEASE_EXPIRED',
    last_error_code = 'job.lease_expired',
    last_error_message = 'Job lease expired before completion.',
    updated_at = now()
FROM picked AS p
WHERE q.id = p.id;
UPDATE job_attempts AS a
SET
    finished_at = now(),
    outcome = 'LEASE_EXPIRED',
    error_code = 'job.lease_expired',
    error_message = 'Job lease expired before completion.',
    retry_delay_ms = CASE WHEN p.is_last THEN a.retry_delay_ms ELSE 30000 END
FROM picked AS p
WHERE a.job_id = p.id AND a.run_number = p.run_number AND a.attempt = p.attempt;
INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
SELECT
    id, run_number, attempt, 'FAILED',
    jsonb_build_object(
        'kind', 'LEASE_EXPIRED', 'error_code', 'job.lease_expired',
        'error_message', 'Job lease expired before completion.',
        'started_without_renewal_heartbeat', false
    ),
    now()
FROM picked;
INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
SELECT
    id, run_number, attempt, 'RETRY_SCHEDULED',
    jsonb_build_object(
        'kind', 'LEASE_EXPIRED', 'retry_delay_ms', 30000,
        'next_run_at', now() + interval '30 seconds', 'started_without_renewal_heartbeat', false
    ),
    now()
FROM picked
WHERE NOT is_last;
INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
SELECT
    id, run_number, attempt, 'DEAD_LETTERED',
    jsonb_build_object(
        'kind', 'LEASE_EXPIRED', 'error_code', 'job.lease_expired',
        'started_without_renewal_heartbeat', false
    ),
    now()
FROM picked
WHERE is_last;
INSERT INTO job_dead_letters (
    job_id, job_type, organization_id, run_number, attempt, error_code, error_message,
    payload_snapshot, checkpoint_snapshot, failed_at
)
SELECT
    id, job_type, organization_id, run_number, attempt, 'job.lease_expired',
    'Job lease expired before completion.', payload, checkpoint, now()
FROM picked
WHERE is_last;
INSERT INTO reaper.terminal_hooks (
    job_id, run_number, attempt, job_type, organization_id, max_attempts, lease_owner, payload,
    reason, failure_kind, error_code, error_message, due_at
)
SELECT
    id, run_number, attempt, job_type, organization_id, max_attempts, worker_id, payload,
    'LEASE_EXPIRED', 'LEASE_EXPIRED', 'job.lease_expired', 'Job lease expired before completion.',
    now() + interval '30 seconds'
FROM picked
WHERE is_last;
COMMIT;
