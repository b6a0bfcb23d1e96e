-- Marks owed hooks whose message was not sent, or perhaps not: due at once.
--
-- Safe to repeat; a hook that was claimed after all is left alone, one that is being claimed (its
-- row is locked) too.
--
-- Parameters
--   hook_ids  bigint[]
-- Returns nothing.
-- Locks: ledger rows (SKIP LOCKED). Index: terminal_hooks_pkey.
WITH unsent AS (
    SELECT hook_id
    FROM reaper.terminal_hooks
    WHERE hook_id = ANY (%(hook_ids)s::bigint[])
        AND state = 'pending'
    FOR UPDATE SKIP LOCKED
)

UPDATE reaper.terminal_hooks AS h
SET due_at = clock_timestamp()
FROM unsent
WHERE h.hook_id = unsent.hook_id
    AND h.state = 'pending'
