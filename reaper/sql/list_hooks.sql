-- Lists ledger rows, newest first: the deaths and what became of their hooks.
--
-- Parameters
--   hook_ids                    NULL, or bigint[]: only these
--   job_id                      NULL, or one job's
--   job_type, organization_id   NULL, or the filter
--   since_at, since_seconds     NULL, or the earliest death, as a time or seconds ago
--   states                      NULL, or some of the ledger's states
--   with_payload                whether to return the payload
--   row_limit                   at most so many, or NULL
-- Returns rows (hook_id, job_id, job_type, organization_id, run_number, attempt, lease_owner,
--   reason, failure_kind, error_code, error_message, state, tries, failures, crashes, due_at,
--   claimed_by, started_at, finished_at, error, created_at, payload as text or NULL).
-- Locks: none. Index: terminal_hooks_pkey, terminal_hooks_job or terminal_hooks_unhappy.
SELECT
    h.hook_id,
    h.job_id,
    h.job_type,
    h.organization_id,
    h.run_number,
    h.attempt,
    h.lease_owner,
    h.reason,
    h.failure_kind,
    h.error_code,
    h.error_message,
    h.state,
    h.tries,
    h.failures,
    h.crashes,
    h.due_at,
    h.claimed_by,
    h.started_at,
    h.finished_at,
    h.error,
    h.created_at,
    CASE WHEN %(with_payload)s THEN h.payload::text END
FROM reaper.terminal_hooks AS h
WHERE (%(hook_ids)s::bigint[] IS NULL OR h.hook_id = ANY (%(hook_ids)s::bigint[]))
    AND (%(job_id)s::text IS NULL OR h.job_id = %(job_id)s::text)
    AND (%(states)s::text[] IS NULL OR h.state = ANY (%(states)s::text[]))
    AND (%(job_type)s::text IS NULL OR h.job_type = %(job_type)s::text)
    AND (%(organization_id)s::text IS NULL OR h.organization_id = %(organization_id)s::text)
    AND h.created_at >= coalesce(
        %(since_at)s::timestamptz, now() - make_interval(secs => %(since_seconds)s), '-infinity'
    )
ORDER BY h.hook_id DESC
LIMIT %(row_limit)s
