-- Lists the rights that a role still lacks.
--
-- Parameters
--   role            an existing role
--   tables, rights  parallel arrays: a table and SELECT, INSERT, UPDATE or DELETE on it
-- Returns rows (table, right, position), in the order given; USAGE of a schema comes first.
-- Locks: none. Index: the catalogue's own.
WITH wanted AS (
    SELECT
        n.name,
        n.privilege,
        n.position,
        c.relnamespace
    FROM unnest(%(tables)s::text[], %(rights)s::text[]) WITH ORDINALITY
        AS n (name, privilege, position)
    JOIN pg_class AS c ON c.oid = to_regclass(n.name)
)

SELECT DISTINCT
    w.relnamespace::regnamespace::text,
    'USAGE',
    0
FROM wanted AS w
WHERE NOT has_schema_privilege(%(role)s::text, w.relnamespace, 'USAGE')
UNION ALL
SELECT
    w.name,
    w.privilege,
    w.position
FROM wanted AS w
WHERE NOT has_table_privilege(%(role)s::text, to_regclass(w.name), w.privilege)
ORDER BY 3
