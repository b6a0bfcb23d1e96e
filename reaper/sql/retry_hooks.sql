-- Owes hooks again: pending and due at once, so that the next redelivery rings. By a person.
--
-- Compare and set: a running hook, and one that somebody else holds, is left alone. What the
-- roll-up has not counted yet is counted here, so that no outcome is lost from the totals. Walks
-- down from `before_id`: a hook is taken once per command, however often it fails meanwhile.
--
-- Parameters
--   hook_ids         NULL, or bigint[]: only these
--   job_type, organization_id, states, since_at, since_seconds  NULL, or the filter
--   before_id        only hooks below this id
--   batch_size       at most so many
--   bounds           upper bounds of the histogram's buckets, seconds, ascending
-- Returns one row (retried, lowest hook_id or NULL).
-- Locks: ledger rows (SKIP LOCKED), the one row of hook_roll_up, then reaper.hook_totals.
-- Index: terminal_hooks_pkey, or terminal_hooks_unhappy.
WITH picked AS MATERIALIZED (
    SELECT
        h.hook_id,
        h.job_type,
        h.state,
        h.started_at,
        h.finished_at
    FROM reaper.terminal_hooks AS h
    WHERE h.state <> 'running'
        AND h.hook_id < %(before_id)s
        AND (%(hook_ids)s::bigint[] IS NULL OR h.hook_id = ANY (%(hook_ids)s::bigint[]))
        AND (%(states)s::text[] IS NULL OR h.state = ANY (%(states)s::text[]))
        AND (%(job_type)s::text IS NULL OR h.job_type = %(job_type)s::text)
        AND (%(organization_id)s::text IS NULL OR h.organization_id = %(organization_id)s::text)
        AND h.created_at >= coalesce(
            %(since_at)s::timestamptz, now() - make_interval(secs => %(since_seconds)s), '-infinity'
        )
    ORDER BY h.hook_id DESC
    LIMIT %(batch_size)s
    FOR UPDATE SKIP LOCKED
),

retried AS (
    UPDATE reaper.terminal_hooks AS h
    SET
        state = 'pending',
        failures = 0,
        crashes = 0,
        due_at = clock_timestamp(),
        owed_since = CASE p.state WHEN 'pending' THEN h.owed_since ELSE clock_timestamp() END,
        claimed_by = NULL,
        finished_at = NULL
    FROM picked AS p
    WHERE h.hook_id = p.hook_id
        AND h.state <> 'running'
    RETURNING h.hook_id
),

rolled_up AS MATERIALIZED (
    SELECT r.counted_until
    FROM reaper.hook_roll_up AS r
    FOR UPDATE
),

-- Keep the bucket's sum in sync with roll_up_hooks.sql and read_hook_totals.sql.
counted AS (
    INSERT INTO reaper.hook_totals AS t (job_type, state, upper_seconds, total, seconds)
    SELECT
        p.job_type,
        p.state,
        (%(bounds)s::double precision[] || double precision 'Infinity')[
            1 + width_bucket(d.seconds, %(bounds)s::double precision[])
        ] AS upper_seconds,
        count(*),
        sum(d.seconds)
    FROM picked AS p
    JOIN retried AS y ON y.hook_id = p.hook_id
    JOIN rolled_up AS r ON p.finished_at > r.counted_until
    CROSS JOIN LATERAL (
        SELECT
            coalesce(extract(epoch FROM p.finished_at - p.started_at), 0)::double precision
                AS seconds
    ) AS d
    WHERE p.state IN ('completed', 'failed', 'timed_out', 'unhandled')
    GROUP BY p.job_type, p.state, upper_seconds
    ORDER BY p.job_type, p.state, upper_seconds
    ON CONFLICT (job_type, state, upper_seconds) DO UPDATE
    SET
        total = t.total + excluded.total,
        seconds = t.seconds + excluded.seconds
)

SELECT
    (SELECT count(*) FROM retried),
    (SELECT min(hook_id) FROM picked)
