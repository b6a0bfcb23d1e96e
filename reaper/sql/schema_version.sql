-- Reads the version of the schema `reaper`.
--
-- Parameters: none.
-- Returns one row (version).
-- Locks: none. Index: none needed.
SELECT max(version)
FROM reaper.schema_version
