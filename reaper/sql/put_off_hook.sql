-- Lets one owed hook of a throttled type wait in the ledger, due, until a probe ends the throttle.
--
-- Only where the message `[hook_id, try]` is no duplicate. A type that is no longer throttled by
-- now has its hook rung again like any other. Safe to repeat: due stays due.
--
-- Parameters
--   hook_id, try_number  the message
--   throttle_after       timeouts in a row from which a type is throttled
-- Returns one row (hook_id) if the hook waits, none for a duplicate.
-- Locks: the ledger row. Index: terminal_hooks_pkey, hook_types_pkey.
UPDATE reaper.terminal_hooks AS h
SET due_at = least(h.due_at, now())
FROM reaper.hook_types AS t
WHERE h.hook_id = %(hook_id)s
    AND h.state = 'pending'
    AND h.tries = %(try_number)s - 1
    AND t.job_type = h.job_type
    AND t.timeouts_in_row >= %(throttle_after)s
    AND t.probe_hook_id IS DISTINCT FROM h.hook_id
RETURNING h.hook_id
