-- Lists the poison rows that were set aside, the most often deferred first.
--
-- Parameters
--   row_limit  at most so many
-- Returns rows (job_id, run_number, attempt, sqlstate, constraint_name or NULL, times).
-- Locks: none. Index: none needed, a row per poison row.
SELECT
    d.job_id,
    d.run_number,
    d.attempt,
    d.sqlstate,
    d.constraint_name,
    d.times
FROM reaper.deferred AS d
ORDER BY d.times DESC, d.job_id
LIMIT %(row_limit)s
