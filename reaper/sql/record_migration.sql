-- Records that a migration was applied, in its own transaction.
--
-- Parameters
--   version  its number
-- Returns nothing.
-- Locks: none. Index: schema_version_pkey.
INSERT INTO reaper.schema_version (version) VALUES (%(version)s)
