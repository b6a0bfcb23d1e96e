-- Asks the planner whether it can find expired leases by index, however small the table is.
--
-- The plan is for the search of reap_batch.sql: keep in sync with it. Runs nothing.
--
-- Parameters: none
-- Returns one row (plan as JSON).
-- Locks: none beyond reading. Index: the one it looks for.
SET LOCAL enable_seqscan = off;

EXPLAIN (FORMAT JSON)
SELECT q.id
FROM job_queue AS q
WHERE q.status = 'LEASED'
    AND q.lease_expires_at < now()
    AND q.workflow_step_id IS NULL
ORDER BY q.lease_expires_at
LIMIT 500
