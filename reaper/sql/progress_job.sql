-- Writes how far a leased job is: stage, counts, checkpoint. NULL leaves a column as it is.
--
-- The first `running` of an attempt sets its execution_started_persisted_at: from then on a
-- prestart claim is a started one and is no longer released by the reap. Fenced as in
-- heartbeat_lease.sql; the lease is not extended. Safe to repeat: one PROGRESS event more.
--
-- Parameters
--   job_id, run_number, attempt, worker_id  the fence
--   stage                                   what the job is doing, or NULL
--   progress_done, progress_total           counts, or NULL
--   checkpoint                              JSON text, or NULL
-- Returns one row (job_id) if the lease is held, none if it is lost; then nothing is written.
-- Locks: the job_queue row, then its job_attempts row.
-- Index: job_queue_pkey, job_attempts_job_id_run_number_attempt_key.
WITH held AS MATERIALIZED (
    SELECT
        q.id,
        q.run_number,
        q.attempt,
        q.stage AS old_stage,
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
        h.*,
        clock_timestamp() AS at
    FROM held AS h
    WHERE h.lease_expires_at > clock_timestamp()
),

moved AS (
    UPDATE job_queue AS q
    SET
        stage = coalesce(%(stage)s, q.stage),
        progress_done = coalesce(%(progress_done)s, q.progress_done),
        progress_total = coalesce(%(progress_total)s, q.progress_total),
        checkpoint = coalesce(%(checkpoint)s::jsonb, q.checkpoint),
        updated_at = l.at
    FROM live AS l
    WHERE q.id = l.id
    RETURNING
        q.id,
        q.run_number,
        q.attempt,
        q.stage,
        q.progress_done,
        q.progress_total,
        l.old_stage,
        l.at
),

started AS (
    UPDATE job_attempts AS a
    SET execution_started_persisted_at = m.at
    FROM moved AS m
    WHERE a.job_id = m.id
        AND a.run_number = m.run_number
        AND a.attempt = m.attempt
        AND a.execution_started_persisted_at IS NULL
        AND %(stage)s = 'running'
    RETURNING a.job_id
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
        m.id,
        m.run_number,
        m.attempt,
        e.event_type,
        m.stage,
        m.progress_done,
        m.progress_total,
        m.at
    FROM moved AS m
    CROSS JOIN LATERAL (
        VALUES
            -- A retried job may still show `running` from before: its new start is news all the same.
            (
                1,
                'STAGE_CHANGED'::job_event_type,
                m.stage <> m.old_stage OR EXISTS (SELECT FROM started)
            ),
            (
                2,
                'PROGRESS',
                %(progress_done)s IS NOT NULL
                    OR %(progress_total)s IS NOT NULL
                    OR %(checkpoint)s IS NOT NULL
            )
    ) AS e (position, event_type, applies)
    WHERE e.applies
    ORDER BY e.position
)

SELECT id::text
FROM moved
