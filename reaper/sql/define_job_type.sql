-- Defines a job type, or changes the defaults of one that is there.
--
-- Jobs already enqueued keep the values they were born with, and a type switched off stays off.
-- Safe to repeat: with the same values it writes nothing.
--
-- Parameters
--   job_type         the type
--   max_attempts     attempts of one run
--   timeout_seconds  how long one attempt may take, seconds
--   priority         higher is claimed first
-- Returns nothing.
-- Locks: the type's row. Index: job_definitions_pkey.
INSERT INTO job_definitions AS d (
    job_type,
    max_attempts,
    default_timeout_seconds,
    default_priority
)
VALUES (
    %(job_type)s,
    %(max_attempts)s,
    %(timeout_seconds)s,
    %(priority)s
)
ON CONFLICT (job_type) DO UPDATE
SET
    max_attempts = excluded.max_attempts,
    default_timeout_seconds = excluded.default_timeout_seconds,
    default_priority = excluded.default_priority,
    updated_at = now()
WHERE (d.max_attempts, d.default_timeout_seconds, d.default_priority)
    IS DISTINCT FROM (
        excluded.max_attempts, excluded.default_timeout_seconds, excluded.default_priority
    )
