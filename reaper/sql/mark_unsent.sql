-- Marks owed hooks whose message was not sent, or perhaps not: due at once.
--
-- Safe to repeat; a hook that was claimed after all is left alone.
--
-- Parameters
--   hook_ids  bigint[]
-- Returns nothing.
-- Locks: ledger rows. Index: terminal_hooks_pkey.
UPDATE reaper.terminal_hooks
SET due_at = clock_timestamp()
WHERE hook_id = ANY (%(hook_ids)s::bigint[])
    AND state = 'pending'
