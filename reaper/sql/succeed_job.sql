-- Ends a leased job well: LEASED -> SUCCEEDED.
--
-- Fenced as in heartbeat_lease.sql. Not safe to repeat blindly: the second run finds the lease gone.
--
-- Parameters
--   job_id, run_number, attempt, worker_id  the fence
-- Returns one row (job_id) if the lease was held, none if it is lost; then nothing is written.
-- Locks: the job_queue row, then its job_attempts row.
-- Index: job_queue_pkey, job_attempts_job_id_run_number_attempt_key.
WITH held AS MATERIALIZED (
    SELECT
        q.id,
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
        clock_timestamp() AS at
    FROM held AS h
    WHERE h.lease_expires_at > clock_timestamp()
),

done AS (
    UPDATE job_queue AS q
    SET
        status = 'SUCCEEDED',
        lease_expires_at = NULL,
        last_heartbeat_at = NULL,
        worker_id = NULL,
        finished_at = l.at,
        status_reason = NULL,
        last_error_code = NULL,
        last_error_message = NULL,
        updated_at = l.at
    FROM live AS l
    WHERE q.id = l.id
    RETURNING q.id, q.run_number, q.attempt, q.stage, q.progress_done, q.progress_total, l.at
),

closed AS (
    UPDATE job_attempts AS a
    SET finished_at = d.at
    FROM done AS d
    WHERE a.job_id = d.id
        AND a.run_number = d.run_number
        AND a.attempt = d.attempt
),

logged AS (
    INSERT INTO job_events (
        job_id,
        run_number,
        attempt,
        event_type,
        stage,
        progress_done,
        progress_total,
        occurred_at
    )
    SELECT
        d.id,
        d.run_number,
        d.attempt,
        'SUCCEEDED',
        d.stage,
        d.progress_done,
        d.progress_total,
        d.at
    FROM done AS d
)

SELECT id::text
FROM done
