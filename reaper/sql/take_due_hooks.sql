-- Takes the oldest owed hooks whose doorbell went unanswered, to ring them again.
--
-- Moves due_at on, so that of two redeliveries at once one rings a row, and it rings again only
-- after `unheard_seconds`. Safe to repeat: a second ring meets the claim and stops. Steps through
-- the index from one job type to the next: the backlog of a throttled type costs one step.
--
-- Parameters
--   batch_size       at most so many
--   unheard_seconds  when to ring again if nothing happens, seconds
--   throttle_after   timeouts in a row from which a type is throttled
-- Returns one row per hook (hook_id, try_number, job_id, job_type), the longest overdue first.
-- Locks: ledger rows (SKIP LOCKED). Index: terminal_hooks_pending, then terminal_hooks_pkey; now(),
-- not clock_timestamp(), because a volatile function never bounds an index scan.
WITH RECURSIVE waiting AS (
    (
        SELECT h.job_type
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
        ORDER BY h.job_type
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT h.job_type
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
            AND h.job_type > w.job_type
        ORDER BY h.job_type
        LIMIT 1
    )
    FROM waiting AS w
    WHERE w.job_type IS NOT NULL
),

due AS MATERIALIZED (
    SELECT
        d.hook_id,
        d.due_at
    FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT
            h.hook_id,
            h.due_at
        FROM reaper.terminal_hooks AS h
        WHERE h.state = 'pending'
            AND h.job_type = w.job_type
            AND h.due_at < now()
        ORDER BY h.due_at, h.hook_id
        LIMIT %(batch_size)s
    ) AS d
    WHERE NOT EXISTS (
        SELECT
        FROM reaper.hook_types AS t
        WHERE t.job_type = w.job_type
            AND t.timeouts_in_row >= %(throttle_after)s
    )
    ORDER BY d.due_at, d.hook_id
    LIMIT %(batch_size)s
),

held AS MATERIALIZED (
    SELECT
        h.hook_id,
        h.due_at
    FROM reaper.terminal_hooks AS h
    -- An array, because the planner takes a join with a whole batch for a reason to read all.
    WHERE h.hook_id = ANY (ARRAY(SELECT due.hook_id FROM due))
        -- By hook_id alone: terminal_hooks_pending, met in the middle of its key, would be read
        -- whole, the throttled backlog included.
        AND h.state || '' = 'pending'
        AND h.due_at < now()
    FOR UPDATE OF h SKIP LOCKED
),

rung AS (
    UPDATE reaper.terminal_hooks AS h
    SET due_at = clock_timestamp() + make_interval(secs => %(unheard_seconds)s)
    FROM held
    WHERE h.hook_id = held.hook_id
        AND h.state = 'pending'
    RETURNING h.hook_id, h.tries + 1 AS try_number, h.job_id, h.job_type, held.due_at
)

SELECT
    hook_id,
    try_number,
    job_id,
    job_type
FROM rung
ORDER BY due_at, hook_id
