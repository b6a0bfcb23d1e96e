-- Records the usual outcome: the hook completed, and no hook of its type timed out lately.
--
-- Half the cost of record_outcome, which records everything else and has the rules: the fence is
-- the same. Safe to repeat: a final state is left alone.
--
-- Parameters
--   hook_id, try_number  which try
-- Returns one row (state, job_id, job_type, run_number, attempt) if recorded, none otherwise.
-- Locks: the ledger row. Index: terminal_hooks_pkey, hook_types_pkey.
UPDATE reaper.terminal_hooks AS h
SET
    state = 'completed',
    error = NULL,
    finished_at = clock_timestamp()
WHERE h.hook_id = %(hook_id)s
    AND h.tries = %(try_number)s
    AND (h.state = 'running' OR (h.state = 'pending' AND h.claimed_by IS NOT NULL))
    AND NOT EXISTS (
        SELECT
        FROM reaper.hook_types AS t
        WHERE t.job_type = h.job_type
            AND t.timeouts_in_row > 0
    )
RETURNING
    h.state,
    h.job_id,
    h.job_type,
    h.run_number,
    h.attempt
