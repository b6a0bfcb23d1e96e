-- Lists dead letters, newest first: what died, why, and what became of it.
--
-- Parameters
--   job_ids                     NULL, or uuid[]: only these
--   job_type, organization_id   NULL, or the filter
--   since_at, since_seconds     NULL, or the earliest death, as a time or seconds ago
--   states                      NULL, or some of dead | requeued | discarded
--   with_payload                whether to return the payload
--   row_limit                   at most so many, or NULL
-- Returns rows (job_id, job_type, organization_id, run_number, attempt, error_code, error_message,
--   failed_at, state, hook_state or NULL, payload as text or NULL).
-- Locks: none. Index: job_dead_letters_failed_at, job_queue_pkey, terminal_hooks_job.
WITH found AS (
    SELECT
        l.*,
        s.state
    FROM job_dead_letters AS l
    JOIN job_queue AS q ON q.id = l.job_id
    -- Keep in sync with count_dead_letters.sql.
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
    ORDER BY l.failed_at DESC, l.job_id DESC
    LIMIT %(row_limit)s
)

SELECT
    f.job_id::text,
    f.job_type,
    f.organization_id::text,
    f.run_number,
    f.attempt,
    f.error_code,
    f.error_message,
    f.failed_at,
    f.state,
    (
        SELECT h.state
        FROM reaper.terminal_hooks AS h
        WHERE h.job_id = f.job_id::text
            AND h.run_number = f.run_number
            AND h.attempt = f.attempt
        ORDER BY h.hook_id DESC
        LIMIT 1
    ),
    CASE WHEN %(with_payload)s THEN f.payload_snapshot::text END
FROM found AS f
ORDER BY f.failed_at DESC, f.job_id DESC
