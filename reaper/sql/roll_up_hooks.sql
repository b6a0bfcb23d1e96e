-- Adds hooks that have finished since the last roll-up to the totals that survive pruning.
--
-- Counts in order of finished_at, from where the last one stopped, and leaves the last few seconds
-- for later: an outcome becomes visible a little after its finished_at. Safe to repeat and to run
-- anywhere at once: the one row of hook_roll_up says what is counted, and whoever does not get it
-- counts nothing.
--
-- Parameters
--   settle_seconds  leave what finished within so many seconds
--   batch_size      count about so many hooks at most
--   bounds          upper bounds of the histogram's buckets, seconds, ascending
-- Returns one row (counted).
-- Locks: the one row of hook_roll_up (SKIP LOCKED), then reaper.hook_totals by type, state, bucket.
-- Index: terminal_hooks_finished.
WITH begun AS MATERIALIZED (
    SELECT r.counted_until AS after
    FROM reaper.hook_roll_up AS r
    FOR UPDATE SKIP LOCKED
),

span AS MATERIALIZED (
    SELECT
        b.after,
        (
            SELECT max(f.finished_at)
            FROM (
                SELECT h.finished_at
                FROM reaper.terminal_hooks AS h
                WHERE h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
                    AND h.finished_at > b.after
                    AND h.finished_at <= now() - make_interval(secs => %(settle_seconds)s)
                ORDER BY h.finished_at
                LIMIT %(batch_size)s
            ) AS f
        ) AS until
    FROM begun AS b
),

-- Keep the bucket's sum in sync with read_hook_totals.sql and retry_hooks.sql.
finished AS (
    SELECT
        h.job_type,
        h.state,
        (%(bounds)s::double precision[] || double precision 'Infinity')[
            1 + width_bucket(d.seconds, %(bounds)s::double precision[])
        ] AS upper_seconds,
        d.seconds
    FROM span AS s
    JOIN reaper.terminal_hooks AS h
        ON h.finished_at > s.after
        AND h.finished_at <= s.until
        AND h.state IN ('completed', 'failed', 'timed_out', 'unhandled')
    CROSS JOIN LATERAL (
        SELECT
            coalesce(extract(epoch FROM h.finished_at - h.started_at), 0)::double precision
                AS seconds
    ) AS d
),

counted AS (
    INSERT INTO reaper.hook_totals AS t (job_type, state, upper_seconds, total, seconds)
    SELECT
        f.job_type,
        f.state,
        f.upper_seconds,
        count(*),
        sum(f.seconds)
    FROM finished AS f
    GROUP BY f.job_type, f.state, f.upper_seconds
    ORDER BY f.job_type, f.state, f.upper_seconds
    ON CONFLICT (job_type, state, upper_seconds) DO UPDATE
    SET
        total = t.total + excluded.total,
        seconds = t.seconds + excluded.seconds
    RETURNING 1
),

moved AS (
    UPDATE reaper.hook_roll_up AS r
    SET counted_until = s.until
    FROM span AS s
    WHERE s.until > r.counted_until
)

SELECT count(*)
FROM finished
