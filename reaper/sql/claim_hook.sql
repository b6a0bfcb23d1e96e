-- Claims one owed hook: pending -> running, and returns what the handler is told.
--
-- The fence is `tries`: a message `[hook_id, try]` claims only the try it was sent for, so a
-- duplicate finds nothing. A type that is throttled lets only its probe through (the others:
-- put_off_hook). Safe to repeat: the second run finds nothing.
--
-- Parameters
--   hook_id, try_number  the message
--   worker               who claims: one worker process, not a pool child
--   lease_seconds        after how long a running hook counts as lost, seconds
--   throttle_after       timeouts in a row from which a type is throttled
--   max_tries            jsonb {job_type: tries}, "*" for the rest; 1 where neither is named
-- Returns no row for a duplicate or a throttled type, else one (job_id, job_type, run_number,
--   attempt, organization_id, max_attempts, lease_owner, payload as text, reason, failure_kind,
--   error_code, error_message).
-- Locks: the ledger row. Index: terminal_hooks_pkey, hook_types_pkey.
UPDATE reaper.terminal_hooks AS h
SET
    state = 'running',
    tries = h.tries + 1,
    max_tries = coalesce(
        (%(max_tries)s::jsonb ->> h.job_type)::integer,
        (%(max_tries)s::jsonb ->> '*')::integer,
        1
    ),
    claimed_by = %(worker)s,
    started_at = clock_timestamp(),
    due_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
WHERE h.hook_id = %(hook_id)s
    AND h.state = 'pending'
    AND h.tries = %(try_number)s - 1
    AND NOT EXISTS (
        SELECT
        FROM reaper.hook_types AS t
        WHERE t.job_type = h.job_type
            AND t.timeouts_in_row >= %(throttle_after)s
            AND t.probe_hook_id IS DISTINCT FROM h.hook_id
    )
RETURNING
    h.job_id,
    h.job_type,
    h.run_number,
    h.attempt,
    h.organization_id,
    h.max_attempts,
    h.lease_owner,
    h.payload::text,
    h.reason,
    h.failure_kind,
    h.error_code,
    h.error_message
