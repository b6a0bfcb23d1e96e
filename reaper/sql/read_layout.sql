-- Reads which columns the tables have that this role sees without naming a schema, and what is
-- there of the schema `reaper`.
--
-- Parameters
--   tables  names of tables, without a schema
-- Returns rows (table, column); those of schema `reaper` as ('reaper', 'table.column'), and
-- ('reaper', '') where the schema itself is there.
-- Locks: none. Index: the catalogue's own.
SELECT
    c.relname::text,
    a.attname::text
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE pg_table_is_visible(c.oid)
    AND c.relkind IN ('r', 'p')
    AND c.relname = ANY (%(tables)s::text[])
UNION ALL
SELECT
    'reaper',
    concat_ws('.', c.relname, a.attname)
FROM pg_namespace AS n
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = 'reaper'
