-- Reads how many hooks ever finished, by type, outcome and duration: the totals and what came since.
--
-- Parameters
--   bounds  upper bounds of the histogram's buckets, seconds, ascending
-- Returns rows (job_type, state, upper_seconds, total, seconds), ordered.
-- Locks: none. Index: terminal_hooks_finished, for what the roll-up has not counted yet.
SELECT
    a.job_type,
    a.state,
    a.upper_seconds,
    sum(a.total)::bigint,
    sum(a.seconds)
FROM (
    SELECT
        t.job_type,
        t.state,
        t.upper_seconds,
        t.total,
        t.seconds
    FROM reaper.hook_totals AS t
    UNION ALL
    -- Keep the bucket's sum in sync with roll_up_hooks.sql and retry_hooks.sql.
    SELECT
        h.job_type,
        h.state,
        (%(bounds)s::double precision[] || double precision 'Infinity')[
            1 + width_bucket(d.seconds, %(bounds)s::double precision[])
        ],
        1,
        d.seconds
    FROM reaper.terminal_hooks AS h
    CROSS JOIN LATERAL (
        SELECT
            coalesce(extract(epoch FROM h.finished_at - h.started_at), 0)::double precision
                AS seconds
    ) AS d
    WHERE h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
        AND h.finished_at > (SELECT r.counted_until FROM reaper.hook_roll_up AS r)
        -- Always true. With both ends the planner takes this for a narrow range, which it is, and
        -- not for a third of the ledger.
        AND h.finished_at < 'infinity'
) AS a
GROUP BY a.job_type, a.state, a.upper_seconds
ORDER BY a.job_type, a.state, a.upper_seconds
