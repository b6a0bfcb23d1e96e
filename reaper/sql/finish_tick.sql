-- Records what a tick did, counts what it left alone, forgets poison rows that have moved on.
--
-- Not safe to repeat: the totals would count the tick twice. A tick that dies before it costs
-- metrics, never a notice: the next one begins where this one did.
--
-- Parameters
--   released, retried, dead_lettered, deferred  counts of this tick
--   job_types, dispositions, totals             parallel arrays: leases reaped by type
--   scanned_to         every lease that expires before this was looked at (text); NULL: unknown
--   full_scan_seconds  what the way to the first lease cost, seconds; NULL: not all were looked at
--   free_seconds       a full scan as cheap as this is never put off, seconds
--   skip_limit         count at most so many skipped rows
-- Returns one row (skipped): expired leases of workflow steps, which the reap leaves alone, as last
--   counted: only a full scan counts them, for it walks past the same index entries.
-- Locks: reaper.ticks, then reaper.tick_totals by type and disposition, then reaper.deferred.
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'; job_queue_pkey.
WITH noted AS (
    UPDATE reaper.ticks AS t
    SET
        finished_at = clock_timestamp(),
        released = %(released)s,
        retried = %(retried)s,
        dead_lettered = %(dead_lettered)s,
        deferred = %(deferred)s,
        skipped = CASE
            WHEN %(full_scan_seconds)s::double precision IS NULL THEN t.skipped
            ELSE (
                SELECT count(*)
                FROM (
                    SELECT
                    FROM job_queue AS q
                    WHERE q.status = 'LEASED'
                        AND q.lease_expires_at < now()
                        AND q.workflow_step_id IS NOT NULL
                    LIMIT %(skip_limit)s
                ) AS found
            )
        END,
        ticks = t.ticks + 1,
        scanned_to = coalesce(%(scanned_to)s::timestamptz, t.scanned_to),
        full_scan_at = CASE
            WHEN %(full_scan_seconds)s::double precision IS NULL THEN t.full_scan_at
            ELSE now()
        END,
        -- A rise is believed by and by: one slow moment of the machine puts nothing off.
        full_scan_took = CASE
            WHEN %(full_scan_seconds)s::double precision IS NULL THEN t.full_scan_took
            ELSE least(
                make_interval(secs => %(full_scan_seconds)s),
                greatest(t.full_scan_took * 2, make_interval(secs => %(free_seconds)s))
            )
        END
    RETURNING t.skipped
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
    WHERE NOT coalesce(
        (
            -- By its key, one at a time: a join would read the whole partial index.
            SELECT q.status = 'LEASED'
                AND q.run_number = d.run_number
                AND q.attempt = d.attempt
            FROM job_queue AS q
            WHERE q.id = d.job_id::uuid
        ),
        false
    )
)

SELECT skipped
FROM noted
