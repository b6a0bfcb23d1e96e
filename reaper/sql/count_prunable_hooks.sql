-- Counts the finished ledger rows older than the retention.
--
-- Parameters
--   retention_seconds  how long a finished row is kept, seconds
-- Returns one row (prunable).
-- Locks: none. Index: terminal_hooks_finished.
SELECT count(*)
FROM reaper.terminal_hooks AS h
WHERE h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
    AND h.finished_at < now() - make_interval(secs => %(retention_seconds)s)
