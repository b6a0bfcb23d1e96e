-- Claims one owed hook: pending -> running, and returns what the handler is told.
--
-- The fence is `tries`: a message `[hook_id, try]` claims only the try it was sent for, so a
-- duplicate finds nothing. A type that is throttled lets only its probe through; the others wait
-- in the ledger, due, so that they ring as soon as a probe has ended the throttle. Safe to repeat:
-- the second run finds nothing.
--
-- Parameters
--   hook_id, try_number  the message
--   worker               who claims: one worker process, not a pool child
--   lease_seconds        after how long a running hook counts as lost, seconds
--   throttle_after       timeouts in a row from which a type is throttled
--   max_tries            jsonb {job_type: tries}, "*" for the rest; 1 where neither is named
-- Returns no row for a duplicate, else one (claimed, job_id, job_type, run_number, attempt,
--   organization_id, max_attempts, lease_owner, payload as text, reason, failure_kind, error_code,
--   error_message); claimed is false where the type is throttled.
-- Locks: the ledger row. Index: terminal_hooks_pkey.
WITH throttle AS MATERIALIZED (
    SELECT t.timeouts_in_row >= %(throttle_after)s
        AND t.probe_hook_id IS DISTINCT FROM h.hook_id AS holds
    FROM reaper.terminal_hooks AS h
    JOIN reaper.hook_types AS t ON t.job_type = h.job_type
    WHERE h.hook_id = %(hook_id)s
)

UPDATE reaper.terminal_hooks AS h
SET
    state = CASE WHEN held.holds THEN 'pending' ELSE 'running' END,
    tries = CASE WHEN held.holds THEN h.tries ELSE h.tries + 1 END,
    max_tries = coalesce(
        (%(max_tries)s::jsonb ->> h.job_type)::integer,
        (%(max_tries)s::jsonb ->> '*')::integer,
        1
    ),
    claimed_by = CASE WHEN held.holds THEN h.claimed_by ELSE %(worker)s END,
    started_at = CASE WHEN held.holds THEN h.started_at ELSE clock_timestamp() END,
    due_at = CASE
        WHEN held.holds THEN least(h.due_at, now())
        ELSE clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    END
FROM (
    SELECT coalesce((SELECT holds FROM throttle), false) AS holds
) AS held
WHERE h.hook_id = %(hook_id)s
    AND h.state = 'pending'
    AND h.tries = %(try_number)s - 1
RETURNING
    NOT held.holds,
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
