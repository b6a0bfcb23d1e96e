-- Hands back the hooks a stopping worker cut off: running -> pending, due at once, no crash counted.
--
-- Fenced by `claimed_by`, which names one worker process; it must have ended its children before.
-- Safe to repeat.
--
-- Parameters
--   worker   the worker process
--   hook_id  NULL for all of its hooks, or one
-- Returns one row per hook (hook_id).
-- Locks: ledger rows by hook_id; waits for an outcome that is being recorded, it may be true.
-- Index: terminal_hooks_running.
WITH held AS (
    SELECT hook_id
    FROM reaper.terminal_hooks
    WHERE state = 'running'
        AND claimed_by = %(worker)s
        AND (%(hook_id)s::bigint IS NULL OR hook_id = %(hook_id)s)
    ORDER BY hook_id
    FOR UPDATE
)

UPDATE reaper.terminal_hooks AS h
SET
    state = 'pending',
    due_at = clock_timestamp()
FROM held
WHERE h.hook_id = held.hook_id
    AND h.state = 'running'
    AND h.claimed_by = %(worker)s
RETURNING h.hook_id
