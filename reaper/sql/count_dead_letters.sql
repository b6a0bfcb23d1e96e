-- Counts the dead letters that a filter means, and reads the database's time: where a bulk action
-- begins.
--
-- Parameters
--   job_ids                     NULL, or uuid[]: only these
--   job_type, organization_id   NULL, or the filter
--   since_at, since_seconds     NULL, or the earliest death, as a time or seconds ago
--   states                      NULL, or some of dead | requeued | discarded
-- Returns one row (matching, now).
-- Locks: none. Index: job_dead_letters_failed_at, job_queue_pkey.
SELECT
    count(*),
    clock_timestamp()
FROM job_dead_letters AS l
JOIN job_queue AS q ON q.id = l.job_id
-- Keep in sync with list_dead_letters.sql.
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN q.status = 'DEAD_LETTERED' THEN 'dead'
        WHEN q.status = 'CANCELED' AND q.run_number = l.run_number THEN 'discarded'
        ELSE 'requeued'
    END AS state
) AS s
WHERE (%(job_ids)s::uuid[] IS NULL OR l.job_id = ANY (%(job_ids)s::uuid[]))
    AND (%(states)s::text[] IS NULL OR s.state = ANY (%(states)s::text[]))
    AND (%(job_type)s::text IS NULL OR l.job_type = %(job_type)s::text)
    AND (%(organization_id)s::uuid IS NULL OR l.organization_id = %(organization_id)s::uuid)
    AND l.failed_at >= coalesce(
        %(since_at)s::timestamptz, now() - make_interval(secs => %(since_seconds)s), '-infinity'
    )
