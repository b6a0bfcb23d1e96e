-- Takes back up to `batch_size` expired leases, oldest first: releases, retries or dead-letters each.
--
-- One statement, one transaction: queue row, attempt, events, dead letter and the ledger row of the
-- owed hook become visible together or not at all. Safe to repeat and to run in any number of
-- sessions: a lease that is taken back no longer matches, and a locked row is skipped.
--
-- Parameters
--   batch_size      how many leases, 1..10000
--   retry_delay_ms  until a retried job may run again, milliseconds
--   unheard_seconds after how long an unanswered doorbell is rung again, seconds
--   scan_from       oldest lease expiry to look at (text); '-infinity' looks at all
--   job_ids         NULL, or uuid[]: only these jobs (how poison rows are isolated)
-- Returns rows (kind, job_type, count, hook_id, job_id, organization_id, run_number, attempt,
--   scanned_to, seconds):
--   kind 'picked'    one row: count = leases locked; every expiry before scanned_to was looked at
--                    (text: PostgreSQL knows times that Python does not); seconds = how long it
--                    took to meet the first lease, or to find none
--   kind 'released' | 'retried' | 'dead_lettered'   count per job type
--   kind 'terminal'  one per dead letter, with its ledger row's hook_id
-- Locks: job_queue rows (SKIP LOCKED), then job_attempts, job_dead_letters, terminal_hooks.
-- Index: the partial index on job_queue (lease_expires_at) WHERE status = 'LEASED'.
WITH expired AS MATERIALIZED (
    SELECT
        q.id,
        q.job_type,
        q.organization_id,
        q.run_number,
        q.attempt,
        q.max_attempts,
        q.worker_id,
        q.stage,
        q.last_heartbeat_at,
        q.lease_expires_at,
        clock_timestamp() AS seen_at
    FROM job_queue AS q
    WHERE q.status = 'LEASED'
        AND q.lease_expires_at < now()
        AND q.lease_expires_at >= %(scan_from)s::timestamptz
        AND q.workflow_step_id IS NULL
        AND (%(job_ids)s::uuid[] IS NULL OR q.id = ANY (%(job_ids)s::uuid[]))
        AND (
            -- Nearly always none is deferred: asked once, and then not for each lease.
            NOT (SELECT EXISTS (SELECT FROM reaper.deferred))
            OR NOT EXISTS (
                SELECT
                FROM reaper.deferred AS d
                WHERE d.job_id = q.id::text
                    AND d.run_number = q.run_number
                    AND d.attempt = q.attempt
                    AND d.until > now()
                OFFSET 0  -- by its key for each lease, however many are deferred
            )
        )
    ORDER BY q.lease_expires_at
    LIMIT %(batch_size)s
    FOR UPDATE OF q SKIP LOCKED
),

-- First the attempts that had started, or need not have: nearly always all, so that what follows finds
-- nothing left to look up.
closed AS (
    UPDATE job_attempts AS a
    SET
        finished_at = now(),
        outcome = 'LEASE_EXPIRED',
        error_code = 'job.lease_expired',
        error_message = 'Job lease expired before completion.',
        retry_delay_ms = CASE
            WHEN e.attempt >= e.max_attempts THEN a.retry_delay_ms
            ELSE %(retry_delay_ms)s
        END
    FROM expired AS e
    WHERE a.job_id = e.id
        AND a.run_number = e.run_number
        AND a.attempt = e.attempt
        AND (a.claim_origin <> 'WORKER_PRESTART' OR a.execution_started_persisted_at IS NOT NULL)
    RETURNING e.*, a.execution_started_persisted_at AS marked_at
),

-- What was really deleted decides a release: a `start` that committed between this statement's
-- snapshot and its lock re-checks this condition and keeps its attempt row.
unstarted AS (
    DELETE FROM job_attempts AS a
    WHERE a.id = ANY (
            ARRAY(
                SELECT t.id
                FROM expired AS e
                CROSS JOIN LATERAL (
                    SELECT j.id
                    FROM job_attempts AS j
                    WHERE j.job_id = e.id
                        AND j.run_number = e.run_number
                        AND j.attempt = e.attempt
                        AND j.claim_origin = 'WORKER_PRESTART'
                        AND j.execution_started_persisted_at IS NULL
                    LIMIT 1  -- looked up by its key for each lease, never the other way round
                ) AS t
                WHERE e.id NOT IN (SELECT c.id FROM closed AS c)
            )
        )
        AND a.execution_started_persisted_at IS NULL
    RETURNING a.job_id
),

-- The attempt whose `start` came between is closed like the others.
closed_late AS (
    UPDATE job_attempts AS a
    SET
        finished_at = now(),
        outcome = 'LEASE_EXPIRED',
        error_code = 'job.lease_expired',
        error_message = 'Job lease expired before completion.',
        retry_delay_ms = CASE
            WHEN e.attempt >= e.max_attempts THEN a.retry_delay_ms
            ELSE %(retry_delay_ms)s
        END
    FROM expired AS e
    WHERE a.job_id = e.id
        AND a.run_number = e.run_number
        AND a.attempt = e.attempt
        AND e.id NOT IN (SELECT c.id FROM closed AS c)
        AND e.id NOT IN (SELECT u.job_id FROM unstarted AS u)
    RETURNING e.*, a.execution_started_persisted_at AS marked_at
),

-- No step joins two of these lists: the planner cannot know how long they are and might compare each
-- row with each. It is always IN, which is a hash, or a table's key.
--
-- silent: a worker that said `running` and was never heard of again, for the events' flag. The start
-- is the attempt's marker, else the first event that says so.
decided AS MATERIALIZED (
    SELECT
        f.*,
        CASE
            WHEN f.id IN (SELECT u.job_id FROM unstarted AS u) THEN 'released'
            WHEN f.attempt >= f.max_attempts THEN 'dead_lettered'
            ELSE 'retried'
        END AS disposition,
        CASE
            WHEN f.stage <> 'running' THEN false
            ELSE coalesce(f.last_heartbeat_at, '-infinity') <= coalesce(
                f.marked_at,
                (
                    SELECT v.occurred_at
                    FROM job_events AS v
                    WHERE v.job_id = f.id
                        AND v.run_number = f.run_number
                        AND v.attempt = f.attempt
                        AND v.event_type = 'STAGE_CHANGED'
                        AND v.stage = 'running'
                    ORDER BY v.id
                    LIMIT 1
                )
            ) IS TRUE
        END AS silent
    FROM (
        SELECT c.*
        FROM closed AS c
        UNION ALL
        SELECT l.*
        FROM closed_late AS l
        UNION ALL
        SELECT
            e.*,
            NULL
        FROM expired AS e
        WHERE e.id NOT IN (SELECT c.id FROM closed AS c)
            AND e.id NOT IN (SELECT l.id FROM closed_late AS l)
    ) AS f
),

reaped AS (
    UPDATE job_queue AS q
    SET
        status = CASE d.disposition
            WHEN 'dead_lettered' THEN 'DEAD_LETTERED'::job_status
            ELSE 'PENDING'::job_status
        END,
        attempt = CASE d.disposition WHEN 'released' THEN q.attempt - 1 ELSE q.attempt END,
        lease_expires_at = NULL,
        last_heartbeat_at = NULL,
        worker_id = NULL,
        next_run_at = CASE d.disposition
            WHEN 'released' THEN now()
            WHEN 'retried' THEN now() + %(retry_delay_ms)s * interval '1 millisecond'
            ELSE q.next_run_at
        END,
        started_at = CASE
            WHEN d.disposition = 'released' AND q.attempt = 1 THEN NULL
            ELSE q.started_at
        END,
        finished_at = CASE d.disposition WHEN 'dead_lettered' THEN now() ELSE q.finished_at END,
        status_reason = CASE d.disposition WHEN 'released' THEN NULL ELSE 'LEASE_EXPIRED' END,
        last_error_code = CASE d.disposition
            WHEN 'released' THEN NULL
            ELSE 'job.lease_expired'
        END,
        last_error_message = CASE d.disposition
            WHEN 'released' THEN NULL
            ELSE 'Job lease expired before completion.'
        END,
        updated_at = now()
    FROM decided AS d
    WHERE q.id = d.id
        -- Not the status: the row is locked, and the planner would read the whole partial index.
        AND q.run_number = d.run_number
        AND q.attempt = d.attempt
    RETURNING
        d.*,
        q.status AS new_status,
        -- Only a dead letter's: the others' would be carried along for nothing.
        CASE d.disposition WHEN 'dead_lettered' THEN q.payload END AS payload,
        CASE d.disposition WHEN 'dead_lettered' THEN q.checkpoint END AS checkpoint
),

-- The events of each disposition, in their order. The same for all leases but for the flag, so made
-- once, not for each row.
said AS MATERIALIZED (
    SELECT
        t.disposition,
        f.silent,
        t.position,
        t.event_type::job_event_type AS event_type,
        CASE
            WHEN t.disposition = 'released' THEN t.details
            ELSE t.details || jsonb_build_object(
                'kind', 'LEASE_EXPIRED', 'started_without_renewal_heartbeat', f.silent
            )
        END AS payload
    FROM (
        VALUES
        (
            'released', 1, 'REQUEUED',
            jsonb_build_object('reason', 'LEASE_EXPIRED_BEFORE_RUNNING_PERSISTED')
        ),
        (
            'retried', 1, 'FAILED',
            jsonb_build_object(
                'error_code', 'job.lease_expired',
                'error_message', 'Job lease expired before completion.'
            )
        ),
        (
            'retried', 2, 'RETRY_SCHEDULED',
            jsonb_build_object(
                'retry_delay_ms', %(retry_delay_ms)s,
                'next_run_at', now() + %(retry_delay_ms)s * interval '1 millisecond'
            )
        ),
        (
            'dead_lettered', 1, 'FAILED',
            jsonb_build_object(
                'error_code', 'job.lease_expired',
                'error_message', 'Job lease expired before completion.'
            )
        ),
        (
            'dead_lettered', 2, 'DEAD_LETTERED',
            jsonb_build_object('error_code', 'job.lease_expired')
        )
    ) AS t (disposition, position, event_type, details)
    CROSS JOIN (VALUES (false), (true)) AS f (silent)
),

logged AS (
    INSERT INTO job_events (job_id, run_number, attempt, event_type, payload, occurred_at)
    SELECT
        d.id,
        d.run_number,
        d.attempt,
        s.event_type,
        s.payload,
        now()
    FROM decided AS d
    INNER JOIN said AS s ON s.disposition = d.disposition AND s.silent = d.silent
    ORDER BY d.lease_expires_at, d.id, s.position
),

dead AS (
    INSERT INTO job_dead_letters AS l (
        job_id,
        job_type,
        organization_id,
        run_number,
        attempt,
        error_code,
        error_message,
        payload_snapshot,
        checkpoint_snapshot,
        failed_at
    )
    SELECT
        r.id,
        r.job_type,
        r.organization_id,
        r.run_number,
        r.attempt,
        'job.lease_expired',
        'Job lease expired before completion.',
        r.payload,
        r.checkpoint,
        now()
    FROM reaped AS r
    WHERE r.disposition = 'dead_lettered'
    ON CONFLICT (job_id) DO UPDATE
    SET
        run_number = excluded.run_number,
        attempt = excluded.attempt,
        error_code = excluded.error_code,
        error_message = excluded.error_message,
        payload_snapshot = excluded.payload_snapshot,
        checkpoint_snapshot = excluded.checkpoint_snapshot,
        failed_at = excluded.failed_at
),

owed AS (
    INSERT INTO reaper.terminal_hooks (
        job_id,
        run_number,
        attempt,
        job_type,
        organization_id,
        max_attempts,
        lease_owner,
        payload,
        reason,
        failure_kind,
        error_code,
        error_message,
        due_at
    )
    SELECT
        r.id,
        r.run_number,
        r.attempt,
        r.job_type,
        r.organization_id,
        r.max_attempts,
        r.worker_id,
        r.payload,
        'LEASE_EXPIRED',
        'LEASE_EXPIRED',
        'job.lease_expired',
        'Job lease expired before completion.',
        now() + make_interval(secs => %(unheard_seconds)s)
    FROM reaped AS r
    WHERE r.disposition = 'dead_lettered'
    ORDER BY r.lease_expires_at, r.id
    RETURNING hook_id, job_id, job_type, organization_id, run_number, attempt
)

SELECT
    'picked' AS kind,
    NULL AS job_type,
    -- A trigger that quietly keeps a row, or its lease, would leave it half reaped and be picked for
    -- ever. Such a row is poison too: failing here (22012) undoes the statement and has it isolated.
    p.count / (
        CASE
            WHEN (SELECT count(*) FROM reaped WHERE new_status <> 'LEASED') = p.count THEN 1
            ELSE 0
        END
    ) AS count,
    NULL::bigint AS hook_id,
    NULL AS job_id,
    NULL AS organization_id,
    NULL::integer AS run_number,
    NULL::integer AS attempt,
    (CASE WHEN p.count < %(batch_size)s THEN now() ELSE p.youngest END)::text AS scanned_to,
    extract(
        epoch FROM coalesce(p.first_seen_at, clock_timestamp()) - b.began_at
    )::double precision AS seconds
FROM (
    SELECT clock_timestamp() AS began_at
    OFFSET 0
) AS b
CROSS JOIN LATERAL (
    SELECT
        count(*) AS count,
        max(e.lease_expires_at) AS youngest,
        min(e.seen_at) AS first_seen_at
    FROM expired AS e
    WHERE b.began_at IS NOT NULL  -- always; it makes the clock be read first
) AS p
UNION ALL
SELECT
    disposition,
    job_type,
    count(*),
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
FROM reaped
GROUP BY disposition, job_type
UNION ALL
SELECT
    'terminal',
    job_type,
    1,
    hook_id,
    job_id,
    organization_id,
    run_number,
    attempt,
    NULL,
    NULL
FROM owed
