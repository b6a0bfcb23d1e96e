-- Counts the ledger's rows by type and state, without the completed ones.
--
-- Completed rows are the many: how many there ever were is in the totals (read_hook_totals.sql).
--
-- Parameters
--   unheard_seconds  a hook due later than in so many seconds waits for its next try, by design
-- Returns rows (job_type, state, count, oldest_seconds): how long the oldest has been owed, for
--   pending rows that may run now, else NULL.
-- Locks: none. Index: terminal_hooks_pending, terminal_hooks_running, terminal_hooks_unhappy.
SELECT
    h.job_type,
    h.state,
    count(*),
    extract(epoch FROM clock_timestamp() - min(h.owed_since) FILTER (
        WHERE h.due_at <= clock_timestamp() + make_interval(secs => %(unheard_seconds)s)
    ))::double precision
FROM reaper.terminal_hooks AS h
WHERE h.state = 'pending'
GROUP BY h.job_type, h.state
UNION ALL
SELECT
    h.job_type,
    h.state,
    count(*),
    NULL
FROM reaper.terminal_hooks AS h
WHERE h.state = 'running'
GROUP BY h.job_type, h.state
UNION ALL
SELECT
    h.job_type,
    h.state,
    count(*),
    NULL
FROM reaper.terminal_hooks AS h
WHERE h.state IN ('failed', 'timed_out', 'unhandled')
GROUP BY h.job_type, h.state
