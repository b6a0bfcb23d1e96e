-- Records what a tick did, counts what it left alone, forgets poison rows that have moved on.
--
-- Not safe to repeat: the totals would count the tick twice. A tick that dies before it costs
-- metrics, never a notice.
--
-- Parameters
--   released, retried, dead_lettered, deferred  counts of this tick
--   job_types, dispositions, totals             parallel arrays: leases reaped by type
--   skip_limit                                  count at most so many skipped rows
-- Returns one row (skipped): expired leases of workflow steps, which the reap leaves alone.
-- Locks: reaper.ticks, then reaper.tick_totals by type and disposition, then reaper.deferred.
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
WITH workflow AS (
    SELECT count(*) AS skipped
    FROM (
        SELECT
        FROM job_queue AS q
        WHERE q.status = 'LEASED'
            AND q.lease_expires_at < now()
            AND q.workflow_step_id IS NOT NULL
        LIMIT %(skip_limit)s
    ) AS found
),

noted AS (
    UPDATE reaper.ticks
    SET
        finished_at = clock_timestamp(),
        released = %(released)s,
        retried = %(retried)s,
        dead_lettered = %(dead_lettered)s,
        deferred = %(deferred)s,
        skipped = workflow.skipped,
        ticks = ticks + 1
    FROM workflow
),

counted AS (
    INSERT INTO reaper.tick_totals AS t (job_type, disposition, total)
    SELECT
        c.job_type,
        c.disposition,
        c.total
    FROM unnest(
        %(job_types)s::text[], %(dispositions)s::text[], %(totals)s::bigint[]
    ) AS c (job_type, disposition, total)
    ORDER BY c.job_type, c.disposition
    ON CONFLICT (job_type, disposition) DO UPDATE
    SET total = t.total + excluded.total
),

moved_on AS (
    DELETE FROM reaper.deferred AS d
    WHERE NOT EXISTS (
        SELECT
        FROM job_queue AS q
        WHERE q.id = d.job_id::uuid
            AND q.run_number = d.run_number
            AND q.attempt = d.attempt
            AND q.status = 'LEASED'
    )
)

SELECT skipped
FROM workflow
