-- Ends a leased job's attempt badly: back to PENDING for a retry, or dead-lettered.
--
-- Dead where the failure is TERMINAL or the attempts are used up (the queue row's copy decides);
-- then the dead letter and the ledger row of the owed hook are born here too, due at once: the next
-- redelivery rings. Fenced as in heartbeat_lease.sql. Not safe to repeat blindly: the second run
-- finds the lease gone.
--
-- Parameters
--   job_id, run_number, attempt, worker_id  the fence
--   failure_kind                            a job_failure_kind
--   error_code, error_message               of the failure
--   retry_delay_ms                          until a retried job may run again, milliseconds
-- Returns one row (disposition) 'retried' | 'dead_lettered', none if the lease is lost; then nothing
--   is written.
-- Locks: the job_queue row, then job_attempts, job_dead_letters, terminal_hooks.
-- Index: job_queue_pkey, job_attempts_job_id_run_number_attempt_key.
WITH held AS MATERIALIZED (
    SELECT
        q.id,
        q.attempt,
        q.max_attempts,
        q.worker_id,
        q.lease_expires_at
    FROM job_queue AS q
    WHERE q.id = %(job_id)s::uuid
        AND q.run_number = %(run_number)s
        AND q.attempt = %(attempt)s
        AND q.worker_id = %(worker_id)s
        AND q.status = 'LEASED'
    FOR NO KEY UPDATE
),

live AS MATERIALIZED (
    SELECT
        h.id,
        h.worker_id,
        CASE
            WHEN %(failure_kind)s = 'TERMINAL' THEN 'TERMINAL_FAILURE'
            WHEN h.attempt >= h.max_attempts THEN 'ATTEMPTS_EXHAUSTED'
        END AS reason,
        clock_timestamp() AS at
    FROM held AS h
    WHERE h.lease_expires_at > clock_timestamp()
),

failed AS (
    UPDATE job_queue AS q
    SET
        status = CASE
            WHEN l.reason IS NULL THEN 'PENDING'::job_status
            ELSE 'DEAD_LETTERED'::job_status
        END,
        lease_expires_at = NULL,
        last_heartbeat_at = NULL,
        worker_id = NULL,
        next_run_at = CASE
            WHEN l.reason IS NULL THEN l.at + %(retry_delay_ms)s * interval '1 millisecond'
            ELSE q.next_run_at
        END,
        finished_at = CASE WHEN l.reason IS NULL THEN q.finished_at ELSE l.at END,
        status_reason = coalesce(l.reason, %(failure_kind)s),
        last_error_code = %(error_code)s,
        last_error_message = %(error_message)s,
        updated_at = l.at
    FROM live AS l
    WHERE q.id = l.id
    RETURNING
        q.id,
        q.job_type,
        q.organization_id,
        q.run_number,
        q.attempt,
        q.max_attempts,
        q.payload,
        q.checkpoint,
        q.next_run_at,
        l.worker_id,
        l.reason,
        l.at
),

closed AS (
    UPDATE job_attempts AS a
    SET
        finished_at = f.at,
        outcome = %(failure_kind)s::job_failure_kind,
        error_code = %(error_code)s,
        error_message = %(error_message)s,
        retry_delay_ms = CASE
            WHEN f.reason IS NULL THEN %(retry_delay_ms)s
            ELSE a.retry_delay_ms
        END
    FROM failed AS f
    WHERE a.job_id = f.id
        AND a.run_number = f.run_number
        AND a.attempt = f.attempt
),

logged AS (
    INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
    SELECT
        f.id,
        f.run_number,
        f.attempt,
        e.event_type,
        e.payload,
        f.at
    FROM failed AS f
    CROSS JOIN LATERAL (
        VALUES
            (
                1,
                'FAILED'::job_event_type,
                true,
                jsonb_build_object(
                    'kind', %(failure_kind)s::text,
                    'error_code', %(error_code)s::text,
                    'error_message', %(error_message)s::text
                )
            ),
            (
                2,
                'RETRY_SCHEDULED',
                f.reason IS NULL,
                jsonb_build_object(
                    'kind', %(failure_kind)s::text,
                    'retry_delay_ms', %(retry_delay_ms)s,
                    'next_run_at', f.next_run_at
                )
            ),
            (
                2,
                'DEAD_LETTERED',
                f.reason IS NOT NULL,
                jsonb_build_object(
                    'kind', %(failure_kind)s::text,
                    'error_code', %(error_code)s::text
                )
            )
    ) AS e (position, event_type, applies, payload)
    WHERE e.applies
    ORDER BY e.position
),

dead AS (
    INSERT INTO job_dead_letters AS l (
        job_id,
        job_type,
        organization_id,
        run_number,
        attempt,
        error_code,
        error_message,
        payload_snapshot,
        checkpoint_snapshot,
        failed_at
    )
    SELECT
        f.id,
        f.job_type,
        f.organization_id,
        f.run_number,
        f.attempt,
        %(error_code)s,
        %(error_message)s,
        f.payload,
        f.checkpoint,
        f.at
    FROM failed AS f
    WHERE f.reason IS NOT NULL
    ON CONFLICT (job_id) DO UPDATE
    SET
        run_number = excluded.run_number,
        attempt = excluded.attempt,
        error_code = excluded.error_code,
        error_message = excluded.error_message,
        payload_snapshot = excluded.payload_snapshot,
        checkpoint_snapshot = excluded.checkpoint_snapshot,
        failed_at = excluded.failed_at
),

owed AS (
    INSERT INTO reaper.terminal_hooks (
        job_id,
        run_number,
        attempt,
        job_type,
        organization_id,
        max_attempts,
        lease_owner,
        payload,
        reason,
        failure_kind,
        error_code,
        error_message,
        due_at
    )
    SELECT
        f.id,
        f.run_number,
        f.attempt,
        f.job_type,
        f.organization_id,
        f.max_attempts,
        f.worker_id,
        f.payload,
        f.reason,
        %(failure_kind)s,
        %(error_code)s,
        %(error_message)s,
        f.at
    FROM failed AS f
    WHERE f.reason IS NOT NULL
)

SELECT CASE WHEN reason IS NULL THEN 'retried' ELSE 'dead_lettered' END AS disposition
FROM failed
