-- Hands back the hooks a stopping worker cut off: running -> pending, due at once, no crash counted.
--
-- Fenced by `claimed_by`, which names one worker process; it must have ended its children before.
-- Safe to repeat.
--
-- Parameters
--   worker   the worker process
--   hook_id  NULL for all of its hooks, or one
-- Returns one row per hook (hook_id).
-- Locks: ledger rows. Index: terminal_hooks_running.
UPDATE reaper.terminal_hooks
SET
    state = 'pending',
    due_at = clock_timestamp()
WHERE state = 'running'
    AND claimed_by = %(worker)s
    AND (%(hook_id)s::bigint IS NULL OR hook_id = %(hook_id)s)
RETURNING hook_id
