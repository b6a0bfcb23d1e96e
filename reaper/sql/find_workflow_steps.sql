-- Finds a table of workflow steps beside the job tables, which reaper does not support.
--
-- Parameters: none
-- Returns one row (is_there).
-- Locks: none. Index: the system catalogue's own.
SELECT to_regclass('workflow_steps') IS NOT NULL
