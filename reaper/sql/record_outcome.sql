-- Records how a hook's try ended: a final state, or pending again where tries are left.
--
-- Fenced by the try, and by a state that nobody has claimed since: a late but true outcome beats a
-- redelivery that is still pending. A second report of one try (child and parent, or a repeat after
-- a broken connection) finds nothing: a final state is left alone, and a hook that goes back for
-- another try forgets who claimed it. Safe to repeat.
--
-- Parameters
--   hook_id, try_number    which try
--   state                  completed | failed | timed_out | unhandled
--   error                  the handler's error, cleaned and cut, or NULL
--   backoff_seconds        before the second try; doubles with each failure
--   backoff_max_seconds    the longest wait
--   probe_seconds          how long a throttled type waits for its next probe
-- Returns one row (state, job_id, job_type, run_number, attempt) if recorded, none otherwise.
-- A type is no longer throttled once a hook of it completed, or has no handler that could hang.
-- Locks: the ledger row, then the type's row. Index: terminal_hooks_pkey.
WITH recorded AS (
    UPDATE reaper.terminal_hooks AS h
    SET
        state = CASE
            WHEN %(state)s IN ('failed', 'timed_out') AND h.failures + 1 < h.max_tries
                THEN 'pending'
            ELSE %(state)s
        END,
        failures = h.failures + (%(state)s IN ('failed', 'timed_out'))::integer,
        claimed_by = CASE
            WHEN %(state)s IN ('failed', 'timed_out') AND h.failures + 1 < h.max_tries THEN NULL
            ELSE h.claimed_by
        END,
        error = %(error)s,
        finished_at = CASE
            WHEN %(state)s IN ('failed', 'timed_out') AND h.failures + 1 < h.max_tries THEN NULL
            ELSE clock_timestamp()
        END,
        due_at = clock_timestamp() + make_interval(
            secs => least(
                %(backoff_max_seconds)s, %(backoff_seconds)s * power(2, least(h.failures, 30))
            )
        )
    WHERE h.hook_id = %(hook_id)s
        AND h.tries = %(try_number)s
        AND (h.state = 'running' OR (h.state = 'pending' AND h.claimed_by IS NOT NULL))
    RETURNING h.hook_id, h.state, h.job_id, h.job_type, h.run_number, h.attempt
),

slowed AS (
    INSERT INTO reaper.hook_types AS t (job_type, timeouts_in_row, probe_at)
    SELECT
        r.job_type,
        1,
        clock_timestamp() + make_interval(secs => %(probe_seconds)s)
    FROM recorded AS r
    WHERE %(state)s = 'timed_out'
    ON CONFLICT (job_type) DO UPDATE
    SET
        timeouts_in_row = t.timeouts_in_row + 1,
        probe_at = excluded.probe_at,
        probe_hook_id = NULL
),

healed AS (
    UPDATE reaper.hook_types AS t
    SET
        timeouts_in_row = 0,
        probe_at = NULL,
        probe_hook_id = NULL
    FROM recorded AS r
    WHERE t.job_type = r.job_type
        AND t.timeouts_in_row > 0
        AND %(state)s IN ('completed', 'unhandled')
)

SELECT
    state,
    job_id,
    job_type,
    run_number,
    attempt
FROM recorded
