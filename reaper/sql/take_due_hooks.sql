-- Takes the oldest owed hooks whose doorbell went unanswered, to ring them again.
--
-- Moves due_at on, so that two redeliveries at once share the rows and a row rings again only after
-- `unheard_seconds`. Safe to repeat: a second ring meets the claim and stops.
--
-- Parameters
--   batch_size       at most so many
--   unheard_seconds  when to ring again if nothing happens, seconds
--   throttle_after   timeouts in a row from which a type is throttled
-- Returns one row per hook (hook_id, try_number, job_id, job_type).
-- Locks: ledger rows (SKIP LOCKED). Index: terminal_hooks_pending.
WITH due AS (
    SELECT h.hook_id
    FROM reaper.terminal_hooks AS h
    WHERE h.state = 'pending'
        AND h.due_at < clock_timestamp()
        AND NOT EXISTS (
            SELECT
            FROM reaper.hook_types AS t
            WHERE t.job_type = h.job_type
                AND t.timeouts_in_row >= %(throttle_after)s
        )
    ORDER BY h.due_at, h.hook_id
    LIMIT %(batch_size)s
    FOR UPDATE OF h SKIP LOCKED
)

UPDATE reaper.terminal_hooks AS h
SET due_at = clock_timestamp() + make_interval(secs => %(unheard_seconds)s)
FROM due
WHERE h.hook_id = due.hook_id
    AND h.state = 'pending'
RETURNING h.hook_id, h.tries + 1, h.job_id, h.job_type
