-- Finds a role of the database server by its name.
--
-- Parameters
--   role  its name, as it is stored
-- Returns one row (rolname), or none.
-- Locks: none. Index: pg_authid_rolname_index.
SELECT rolname
FROM pg_roles
WHERE rolname = %(role)s::text
