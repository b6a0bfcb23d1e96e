-- Takes one owed hook of each throttled type whose probe is due: the next single try.
--
-- Safe to run anywhere at once: the type's row is locked, and its probe moves on.
--
-- Parameters
--   throttle_after   timeouts in a row from which a type is throttled
--   probe_seconds    until the type's next probe, seconds
--   unheard_seconds  when to ring again if nothing happens, seconds
-- Returns one row per hook (hook_id, try_number, job_id, job_type).
-- Locks: the type's row (SKIP LOCKED), then the ledger row. Index: terminal_hooks_pending.
WITH probing AS MATERIALIZED (
    SELECT
        t.job_type,
        (
            SELECT h.hook_id
            FROM reaper.terminal_hooks AS h
            WHERE h.state = 'pending'
                AND h.job_type = t.job_type
            ORDER BY h.due_at, h.hook_id
            LIMIT 1
        ) AS hook_id
    FROM reaper.hook_types AS t
    WHERE t.timeouts_in_row >= %(throttle_after)s
        AND t.probe_at < clock_timestamp()
    FOR UPDATE OF t SKIP LOCKED
),

marked AS (
    UPDATE reaper.hook_types AS t
    SET
        probe_hook_id = p.hook_id,
        probe_at = clock_timestamp() + make_interval(secs => %(probe_seconds)s)
    FROM probing AS p
    WHERE t.job_type = p.job_type
    RETURNING p.hook_id
)

UPDATE reaper.terminal_hooks AS h
SET due_at = clock_timestamp() + make_interval(secs => %(unheard_seconds)s)
FROM marked AS m
WHERE h.hook_id = m.hook_id
    AND h.state = 'pending'
RETURNING h.hook_id, h.tries + 1, h.job_id, h.job_type
