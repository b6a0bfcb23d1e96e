-- Takes one owed hook of each throttled type whose probe is due: the next single try.
--
-- One probe at a time: a type whose probe still runs is left alone, and a hook that waits for
-- another try is no probe before its time. Safe to run anywhere at once: the rows are locked, and
-- the type's probe moves on.
--
-- Parameters
--   throttle_after   timeouts in a row from which a type is throttled
--   probe_seconds    until the type's next probe, seconds
--   unheard_seconds  when to ring again if nothing happens, seconds
-- Returns one row per hook (hook_id, try_number, job_id, job_type).
-- Locks: the ledger rows, then the types' rows, as an outcome does; all SKIP LOCKED, so that this
-- never waits for one. Index: terminal_hooks_pending, hook_types_pkey.
WITH probing AS MATERIALIZED (
    SELECT
        t.job_type,
        (
            SELECT h.hook_id
            FROM reaper.terminal_hooks AS h
            WHERE h.state = 'pending'
                AND h.job_type = t.job_type
                AND h.due_at < now()
            ORDER BY h.due_at, h.hook_id
            LIMIT 1
        ) AS hook_id
    FROM reaper.hook_types AS t
    WHERE t.timeouts_in_row >= %(throttle_after)s
        AND t.probe_at < now()
        AND NOT EXISTS (
            SELECT
            FROM reaper.terminal_hooks AS r
            WHERE r.hook_id = t.probe_hook_id
                AND r.state = 'running'
        )
),

owed AS MATERIALIZED (
    SELECT
        h.hook_id,
        h.job_type
    FROM reaper.terminal_hooks AS h
    WHERE h.hook_id = ANY (ARRAY(SELECT p.hook_id FROM probing AS p))
        -- By hook_id alone: terminal_hooks_pending, met in the middle of its key, would be read
        -- whole, the throttled backlog included.
        AND h.state || '' = 'pending'
        AND h.due_at < now()
    FOR UPDATE OF h SKIP LOCKED
),

throttled AS MATERIALIZED (
    SELECT
        t.job_type,
        o.hook_id
    FROM reaper.hook_types AS t
    JOIN owed AS o ON o.job_type = t.job_type
    WHERE t.timeouts_in_row >= %(throttle_after)s
        AND t.probe_at < now()
    FOR UPDATE OF t SKIP LOCKED
),

marked AS (
    UPDATE reaper.hook_types AS t
    SET
        probe_hook_id = p.hook_id,
        probe_at = clock_timestamp() + make_interval(secs => %(probe_seconds)s)
    FROM throttled AS p
    WHERE t.job_type = p.job_type
)

UPDATE reaper.terminal_hooks AS h
SET due_at = clock_timestamp() + make_interval(secs => %(unheard_seconds)s)
FROM throttled AS p
WHERE h.hook_id = p.hook_id
    AND h.state = 'pending'
RETURNING h.hook_id, h.tries + 1, h.job_id, h.job_type
