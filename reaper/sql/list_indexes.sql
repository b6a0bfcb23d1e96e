-- Lists the indexes of the queue and of the ledger, and whether each can be used.
--
-- Parameters: none
-- Returns rows (table, index, is_usable), ordered.
-- Locks: none. Index: the system catalogue's own.
SELECT
    t.relname::text,
    c.relname::text,
    i.indisvalid AND i.indisready
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
WHERE i.indrelid IN (to_regclass('job_queue'), to_regclass('reaper.terminal_hooks'))
ORDER BY t.relname, c.relname
