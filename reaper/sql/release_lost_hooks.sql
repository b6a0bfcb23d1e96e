-- Gives up on running hooks past their time: their worker is lost. Pending again, or failed.
--
-- The `max_crashes`th crash is final. Safe to repeat and to run anywhere at once: what was released
-- is no longer running, and a row locked by an outcome being recorded is skipped.
--
-- Parameters
--   max_crashes  crashes that end a hook
--   batch_size   at most so many rows
-- Returns one row per hook (state, hook_id, job_id, job_type, run_number, attempt, crashes).
-- Locks: ledger rows (SKIP LOCKED). Index: terminal_hooks_running; now(), not clock_timestamp(),
-- because a volatile function never bounds an index scan.
WITH lost AS (
    SELECT hook_id
    FROM reaper.terminal_hooks
    WHERE state = 'running'
        AND due_at < now()
    ORDER BY due_at
    LIMIT %(batch_size)s
    FOR UPDATE SKIP LOCKED
)

UPDATE reaper.terminal_hooks AS h
SET
    crashes = h.crashes + 1,
    state = CASE WHEN h.crashes + 1 >= %(max_crashes)s THEN 'failed' ELSE 'pending' END,
    error = 'worker lost',
    finished_at = CASE WHEN h.crashes + 1 >= %(max_crashes)s THEN clock_timestamp() END,
    due_at = clock_timestamp()
FROM lost
WHERE h.hook_id = lost.hook_id
    AND h.state = 'running'
RETURNING h.state, h.hook_id, h.job_id, h.job_type, h.run_number, h.attempt, h.crashes
