-- Says whether there is an expired lease to take back: what an idle tick asks, and all it asks.
--
-- Writes nothing. Planning and starting reap_batch would be nearly all that an idle tick costs. A
-- lease that is deferred or locked counts too: reap_batch, which then follows, decides.
--
-- Parameters
--   scan_from  oldest lease expiry to look at (text); '-infinity' looks at all
-- Returns one row (is_any, scanned_to, seconds): every expiry before scanned_to was looked at (text);
--   seconds = how long it took to meet the first lease, or to find none.
-- Locks: none.
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
SELECT
    f.is_any,
    now()::text AS scanned_to,
    extract(epoch FROM clock_timestamp() - f.began_at)::double precision AS seconds
FROM (
    SELECT
        b.began_at,
        (
            SELECT q.lease_expires_at
            FROM job_queue AS q
            WHERE q.status = 'LEASED'
                AND q.lease_expires_at < now()
                AND q.lease_expires_at >= %(scan_from)s::timestamptz
                AND q.workflow_step_id IS NULL
                AND b.began_at IS NOT NULL  -- always; it makes the clock be read first
            ORDER BY q.lease_expires_at
            LIMIT 1
        ) IS NOT NULL AS is_any
    FROM (
        SELECT clock_timestamp() AS began_at
        OFFSET 0
    ) AS b
    OFFSET 0  -- found before the clock is read again
) AS f
