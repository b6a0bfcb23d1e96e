-- Reads how many leases were ever reaped, by type and disposition.
--
-- Parameters: none
-- Returns rows (job_type, disposition, total), ordered.
-- Locks: none. Index: tick_totals_pkey.
SELECT
    t.job_type,
    t.disposition,
    t.total
FROM reaper.tick_totals AS t
ORDER BY t.job_type, t.disposition
