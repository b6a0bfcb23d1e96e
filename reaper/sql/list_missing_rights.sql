-- Lists the rights that the connected role lacks.
--
-- Parameters
--   tables, rights  parallel arrays: a table and SELECT, INSERT, UPDATE or DELETE on it
-- Returns rows (table, right), in the order given.
-- Locks: none. Index: none.
SELECT
    n.name,
    n.privilege
FROM unnest(%(tables)s::text[], %(rights)s::text[]) WITH ORDINALITY
    AS n (name, privilege, position)
WHERE to_regclass(n.name) IS NOT NULL
    AND NOT has_table_privilege(to_regclass(n.name), n.privilege)
ORDER BY n.position
