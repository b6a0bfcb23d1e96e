-- Finds rows that no reap can ever move: leases without an end or a holder, deaths without a record.
--
-- Each kind is looked for up to `row_limit` rows.
--
-- Parameters
--   row_limit  stop counting a kind here
-- Returns one row per kind found (kind, count, up to three job ids as text[]).
-- Locks: none.
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'; dead-lettered
--   rows are read from the table.
WITH found AS (
    (
        SELECT
            'leased without an end' AS kind,
            q.id
        FROM job_queue AS q
        WHERE q.status = 'LEASED'
            AND q.lease_expires_at IS NULL
        LIMIT %(row_limit)s
    )
    UNION ALL
    (
        SELECT
            'leased for ever',
            q.id
        FROM job_queue AS q
        WHERE q.status = 'LEASED'
            AND q.lease_expires_at = 'infinity'
        LIMIT %(row_limit)s
    )
    UNION ALL
    (
        SELECT
            'leased by nobody',
            q.id
        FROM job_queue AS q
        WHERE q.status = 'LEASED'
            AND q.worker_id IS NULL
        LIMIT %(row_limit)s
    )
    UNION ALL
    (
        SELECT
            'dead-lettered without a dead letter',
            q.id
        FROM job_queue AS q
        WHERE q.status = 'DEAD_LETTERED'
            AND NOT EXISTS (
                SELECT
                FROM job_dead_letters AS l
                WHERE l.job_id = q.id
            )
        LIMIT %(row_limit)s
    )
)

SELECT
    f.kind,
    count(*),
    (array_agg(f.id::text ORDER BY f.id))[1:3]
FROM found AS f
GROUP BY f.kind
ORDER BY f.kind
