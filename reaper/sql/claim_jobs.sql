-- Claims up to `batch_size` jobs that may run: PENDING -> LEASED, one attempt more.
--
-- Any number of sessions may claim at once: a row locked by another is skipped, and one that another
-- has just claimed no longer matches when its lock is taken. Jobs of a workflow are left alone, as
-- the reap leaves them. Safe to repeat: every run claims other jobs; leases whose answer was lost
-- expire and are reaped.
--
-- Parameters
--   worker_id      who claims
--   lease_seconds  until the lease expires, seconds
--   batch_size     at most so many
--   job_types      NULL, or text[]: only these types
--   claim_origin   'DIRECT' | 'WORKER_PRESTART'
-- Returns one row per lease, in claim order (job_id, job_type, run_number, attempt, max_attempts,
--   worker_id, organization_id, stage, payload as text, checkpoint as text).
-- Locks: job_queue rows (SKIP LOCKED), then job_attempts.
-- Index: the partial index on job_queue (priority DESC, next_run_at, created_at, id) WHERE
--   status = 'PENDING', read in its order.
WITH claimable AS MATERIALIZED (
    SELECT
        q.id,
        q.priority,
        q.next_run_at,
        q.created_at
    FROM job_queue AS q
    WHERE q.status = 'PENDING'
        AND q.next_run_at <= now()
        AND q.workflow_step_id IS NULL
        -- An array made once, not a join: a join could cost the order of the index.
        AND q.job_type = ANY (
            ARRAY(
                SELECT d.job_type
                FROM job_definitions AS d
                WHERE d.is_enabled
                    AND (%(job_types)s::text[] IS NULL OR d.job_type = ANY (%(job_types)s::text[]))
            )
        )
    ORDER BY q.priority DESC, q.next_run_at, q.created_at, q.id
    LIMIT %(batch_size)s
    FOR NO KEY UPDATE OF q SKIP LOCKED
),

leased AS (
    UPDATE job_queue AS q
    SET
        status = 'LEASED',
        attempt = q.attempt + 1,
        worker_id = %(worker_id)s,
        lease_expires_at = now() + make_interval(secs => %(lease_seconds)s),
        last_heartbeat_at = now(),
        started_at = coalesce(q.started_at, now()),
        updated_at = now()
    FROM claimable AS c
    WHERE q.id = c.id
        AND q.status = 'PENDING'
    RETURNING
        q.id,
        q.job_type,
        q.run_number,
        q.attempt,
        q.max_attempts,
        q.worker_id,
        q.organization_id,
        q.stage,
        q.payload,
        q.checkpoint,
        q.lease_expires_at,
        c.priority,
        c.next_run_at,
        c.created_at
),

-- An attempt of that number is there only where somebody set the counter back by hand. It is begun
-- anew: refusing it would let one such row at the head of the queue stop every claim.
attempted AS (
    INSERT INTO job_attempts (
        job_id,
        run_number,
        attempt,
        worker_id,
        leased_at,
        started_at,
        claim_origin
    )
    SELECT
        l.id,
        l.run_number,
        l.attempt,
        l.worker_id,
        now(),
        now(),
        %(claim_origin)s
    FROM leased AS l
    ON CONFLICT (job_id, run_number, attempt) DO UPDATE
    SET
        worker_id = excluded.worker_id,
        leased_at = excluded.leased_at,
        started_at = excluded.started_at,
        finished_at = NULL,
        outcome = NULL,
        error_code = NULL,
        error_message = NULL,
        retry_delay_ms = NULL,
        claim_origin = excluded.claim_origin,
        execution_started_persisted_at = NULL
),

logged AS (
    INSERT INTO job_events (job_id, run_number, attempt, event_type, stage, payload, occurred_at)
    SELECT
        l.id,
        l.run_number,
        l.attempt,
        'LEASED',
        l.stage,
        jsonb_build_object(
            'worker_id', l.worker_id,
            'lease_expires_at', l.lease_expires_at,
            'claim_origin', %(claim_origin)s::text
        ),
        now()
    FROM leased AS l
    ORDER BY l.priority DESC, l.next_run_at, l.created_at, l.id
)

SELECT
    l.id::text,
    l.job_type,
    l.run_number,
    l.attempt,
    l.max_attempts,
    l.worker_id,
    l.organization_id::text,
    l.stage,
    l.payload::text,
    l.checkpoint::text
FROM leased AS l
ORDER BY l.priority DESC, l.next_run_at, l.created_at, l.id
