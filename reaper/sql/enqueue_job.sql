-- Enqueues one job with the defaults of its type, unless its idempotency key is taken.
--
-- Safe to repeat with an idempotency key: the second run returns the first one's job. Without a key
-- every run is another job. Where another session commits the same key while this statement waits
-- for it, the snapshot does not show that job yet: job_id is NULL then, and a second run finds it.
--
-- Parameters
--   job_type         the type
--   organization_id  uuid, or NULL
--   payload          JSON text
--   priority         NULL takes the type's
--   max_attempts     NULL takes the type's
--   delay_seconds    until the job may be claimed, seconds
--   idempotency_key  unique within type and organization, or NULL
-- Returns one row (job_id, is_enabled): is_enabled is NULL where the type is not defined.
-- Locks: waits for a session that is enqueueing the same key.
-- Index: job_definitions_pkey, job_queue_idempotency.
WITH definition AS (
    SELECT
        d.job_type,
        d.is_enabled,
        d.default_priority,
        d.max_attempts,
        d.default_timeout_seconds
    FROM job_definitions AS d
    WHERE d.job_type = %(job_type)s
),

existing AS (
    SELECT q.id
    FROM job_queue AS q
    WHERE q.job_type = %(job_type)s
        AND coalesce(q.organization_id::text, '') = coalesce(%(organization_id)s::uuid::text, '')
        AND q.idempotency_key = %(idempotency_key)s
),

added AS (
    INSERT INTO job_queue (
        job_type,
        organization_id,
        payload,
        priority,
        max_attempts,
        timeout_seconds,
        next_run_at,
        idempotency_key
    )
    SELECT
        d.job_type,
        %(organization_id)s::uuid,
        %(payload)s::jsonb,
        coalesce(%(priority)s, d.default_priority),
        coalesce(%(max_attempts)s, d.max_attempts),
        d.default_timeout_seconds,
        now() + make_interval(secs => %(delay_seconds)s),
        %(idempotency_key)s
    FROM definition AS d
    WHERE d.is_enabled
        AND NOT EXISTS (SELECT FROM existing)
    ON CONFLICT DO NOTHING
    RETURNING id, run_number, stage
),

logged AS (
    INSERT INTO job_events (job_id, run_number, event_type, stage, occurred_at)
    SELECT
        a.id,
        a.run_number,
        'ENQUEUED',
        a.stage,
        now()
    FROM added AS a
)

SELECT
    coalesce((SELECT id FROM existing), (SELECT id FROM added))::text AS job_id,
    (SELECT is_enabled FROM definition) AS is_enabled
