-- Gives dead-lettered jobs up: CANCELED, off the list of the dead. By a person.
--
-- Compare and set: only a job that is still dead-lettered, that nobody else holds and that belongs
-- to no workflow step. The dead letter and the ledger rows stay, and a hook that is still owed
-- still runs. Walks down from the newest death before (`before_at`, `before_id`).
--
-- Parameters
--   job_ids                     NULL, or uuid[]: only these
--   job_type, organization_id   NULL, or the filter
--   since_at, since_seconds     NULL, or the earliest death, as a time or seconds ago
--   before_at, before_id        only deaths before this one
--   batch_size                  at most so many
-- Returns one row (discarded, picked, failed_at, job_id): the last two are the oldest death picked.
-- Locks: job_queue rows (SKIP LOCKED).
-- Index: job_dead_letters_failed_at, job_queue_pkey.
WITH picked AS MATERIALIZED (
    SELECT
        l.job_id,
        l.failed_at,
        q.run_number,
        q.attempt
    FROM job_dead_letters AS l
    JOIN job_queue AS q ON q.id = l.job_id
    WHERE q.status = 'DEAD_LETTERED'
        AND q.workflow_step_id IS NULL
        AND (l.failed_at, l.job_id) < (%(before_at)s::timestamptz, %(before_id)s::uuid)
        AND (%(job_ids)s::uuid[] IS NULL OR l.job_id = ANY (%(job_ids)s::uuid[]))
        AND (%(job_type)s::text IS NULL OR l.job_type = %(job_type)s::text)
        AND (%(organization_id)s::uuid IS NULL OR l.organization_id = %(organization_id)s::uuid)
        AND l.failed_at >= coalesce(
            %(since_at)s::timestamptz, now() - make_interval(secs => %(since_seconds)s), '-infinity'
        )
    ORDER BY l.failed_at DESC, l.job_id DESC
    LIMIT %(batch_size)s
    FOR UPDATE OF q SKIP LOCKED
),

discarded AS (
    UPDATE job_queue AS q
    SET
        status = 'CANCELED',
        status_reason = 'DISCARDED',
        updated_at = now()
    FROM picked AS p
    WHERE q.id = p.job_id
        AND q.status = 'DEAD_LETTERED'
        AND q.run_number = p.run_number
        AND q.attempt = p.attempt
    RETURNING q.id, q.run_number, p.attempt
),

logged AS (
    INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
    SELECT
        d.id,
        d.run_number,
        nullif(d.attempt, 0),
        'CANCELED',
        jsonb_build_object('reason', 'DEAD_LETTER_DISCARDED'),
        now()
    FROM discarded AS d
    ORDER BY d.id
)

SELECT
    (SELECT count(*) FROM discarded),
    (SELECT count(*) FROM picked),
    o.failed_at,
    o.job_id::text
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT
        p.failed_at,
        p.job_id
    FROM picked AS p
    ORDER BY p.failed_at, p.job_id
    LIMIT 1
) AS o ON true
