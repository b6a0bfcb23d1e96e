-- Extends a lease that is still held: it now ends `lease_seconds` from this moment.
--
-- The fence: the row is locked first, then its lease is compared with the clock, so a heartbeat that
-- waited for the lock past the expiry loses. Safe to repeat: one HEARTBEAT event more.
--
-- Parameters
--   job_id, run_number, attempt, worker_id  the fence
--   lease_seconds                           until the lease expires, seconds
-- Returns one row (job_id) if the lease is held, none if it is lost; then nothing is written.
-- Locks: the job_queue row.
-- Index: job_queue_pkey.
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

-- The clock, not now(): now() is when the transaction began, perhaps before a wait for the lock.
live AS MATERIALIZED (
    SELECT
        h.id,
        clock_timestamp() AS at
    FROM held AS h
    WHERE h.lease_expires_at > clock_timestamp()
),

renewed AS (
    UPDATE job_queue AS q
    SET
        lease_expires_at = l.at + make_interval(secs => %(lease_seconds)s),
        last_heartbeat_at = l.at,
        updated_at = l.at
    FROM live AS l
    WHERE q.id = l.id
    RETURNING q.id, q.run_number, q.attempt, q.stage, q.lease_expires_at, l.at
),

logged AS (
    INSERT INTO job_events (job_id, run_number, attempt, event_type, stage, payload, occurred_at)
    SELECT
        r.id,
        r.run_number,
        r.attempt,
        'HEARTBEAT',
        r.stage,
        jsonb_build_object('lease_expires_at', r.lease_expires_at),
        r.at
    FROM renewed AS r
)

SELECT id::text
FROM renewed
