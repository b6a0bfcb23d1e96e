-- Counts the ledger rows that a filter means, without the running ones, and reads the highest id:
-- where a bulk action begins.
--
-- Parameters
--   hook_ids                    NULL, or bigint[]: only these
--   job_type, organization_id   NULL, or the filter
--   since_at, since_seconds     NULL, or the earliest death, as a time or seconds ago
--   states                      NULL, or some of the ledger's states
-- Returns one row (matching, highest hook_id or 0).
-- Locks: none. Index: terminal_hooks_pkey or terminal_hooks_unhappy.
SELECT
    count(*),
    coalesce(max(h.hook_id), 0)
FROM reaper.terminal_hooks AS h
WHERE h.state <> 'running'
    AND (%(hook_ids)s::bigint[] IS NULL OR h.hook_id = ANY (%(hook_ids)s::bigint[]))
    AND (%(states)s::text[] IS NULL OR h.state = ANY (%(states)s::text[]))
    AND (%(job_type)s::text IS NULL OR h.job_type = %(job_type)s::text)
    AND (%(organization_id)s::text IS NULL OR h.organization_id = %(organization_id)s::text)
    AND h.created_at >= coalesce(
        %(since_at)s::timestamptz, now() - make_interval(secs => %(since_seconds)s), '-infinity'
    )
