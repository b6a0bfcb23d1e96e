-- Sets a poison row aside: the reap skips it until `retry_delay_ms` have passed.
--
-- The job row itself is not touched, so this works even where every UPDATE of it raises, and its
-- dead lease stays dead. Safe to repeat: the count and the time move on.
--
-- Parameters
--   job_id, run_number, attempt  the row
--   retry_delay_ms               how long, milliseconds
--   sqlstate, constraint_name    why; never the row's contents
-- Returns nothing.
-- Locks: one row of reaper.deferred.
-- Index: deferred_pkey.
INSERT INTO reaper.deferred AS d (
    job_id,
    run_number,
    attempt,
    until,
    sqlstate,
    constraint_name
)
VALUES (
    %(job_id)s,
    %(run_number)s,
    %(attempt)s,
    now() + %(retry_delay_ms)s * interval '1 millisecond',
    %(sqlstate)s,
    %(constraint_name)s
)
ON CONFLICT (job_id) DO UPDATE
SET
    run_number = excluded.run_number,
    attempt = excluded.attempt,
    until = excluded.until,
    sqlstate = excluded.sqlstate,
    constraint_name = excluded.constraint_name,
    times = d.times + 1
