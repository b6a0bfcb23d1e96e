-- Creates the schema `reaper`, unless an administrator did so before.
--
-- Safe to repeat inside the migration's lock. Asks for CREATE on the database only where the schema
-- is missing: `CREATE SCHEMA IF NOT EXISTS` asks for it in any case.
--
-- Parameters: none.
-- Returns nothing.
-- Locks: none that matter. Index: none.
DO $create$
BEGIN
    IF to_regnamespace('reaper') IS NULL THEN
        CREATE SCHEMA reaper;
    END IF;
END
$create$;
CREATE TABLE IF NOT EXISTS reaper.schema_version (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
