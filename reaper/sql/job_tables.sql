-- Creates the job tables of the reference layout, for a database that has none.
--
-- Names, types and meanings are a contract shared with the workers; see docs/architecture.md.
-- Run by `reaper migrate --with-job-tables` inside the migration's transaction. Never run where
-- a table of that name exists.
--
-- Parameters: none.
-- Returns nothing.
-- Locks: new tables only. Index: none.

CREATE TYPE job_status AS ENUM ('PENDING', 'LEASED', 'SUCCEEDED', 'DEAD_LETTERED', 'CANCELED');

CREATE TYPE job_failure_kind AS ENUM (
    'RETRYABLE', 'TERMINAL', 'PANICKED', 'TIMEOUT', 'LEASE_EXPIRED'
);

CREATE TYPE job_event_type AS ENUM (
    'ENQUEUED', 'LEASED', 'HEARTBEAT', 'STAGE_CHANGED', 'PROGRESS', 'RETRY_SCHEDULED',
    'SUCCEEDED', 'FAILED', 'DEAD_LETTERED', 'CANCELED', 'REQUEUED'
);

CREATE TABLE job_definitions (
    job_type text PRIMARY KEY CHECK (btrim(job_type) <> ''),
    version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    max_attempts integer NOT NULL DEFAULT 8 CHECK (max_attempts > 0),
    default_timeout_seconds integer NOT NULL DEFAULT 900 CHECK (default_timeout_seconds > 0),
    default_priority integer NOT NULL DEFAULT 100,
    is_enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE job_queue (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    job_type text NOT NULL REFERENCES job_definitions (job_type),
    organization_id uuid,
    payload jsonb NOT NULL DEFAULT '{}',
    status job_status NOT NULL DEFAULT 'PENDING',
    priority integer NOT NULL DEFAULT 100,
    run_number integer NOT NULL DEFAULT 1 CHECK (run_number > 0),
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    max_attempts integer NOT NULL CHECK (max_attempts > 0),
    timeout_seconds integer NOT NULL DEFAULT 900 CHECK (timeout_seconds > 0),
    next_run_at timestamptz NOT NULL DEFAULT now(),
    lease_expires_at timestamptz,
    last_heartbeat_at timestamptz,
    worker_id text CHECK (btrim(worker_id) <> ''),
    started_at timestamptz,
    finished_at timestamptz,
    stage text NOT NULL DEFAULT 'queued' CHECK (btrim(stage) <> ''),
    progress_done bigint CHECK (progress_done >= 0),
    progress_total bigint CHECK (progress_total >= 0),
    progress_pct numeric GENERATED ALWAYS AS (
        round(100.0 * progress_done / nullif(progress_total, 0), 2)
    ) STORED,
    checkpoint jsonb,
    idempotency_key text CHECK (btrim(idempotency_key) <> ''),
    status_reason text,
    last_error_code text,
    last_error_message text,
    workflow_step_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK (progress_done <= progress_total)
)
-- Every lease, heartbeat and reap updates the row: leave room for it on the page.
WITH (fillfactor = 80);

CREATE INDEX job_queue_leased ON job_queue (lease_expires_at) WHERE status = 'LEASED';
CREATE INDEX job_queue_claimable ON job_queue (priority DESC, next_run_at, created_at, id)
    WHERE status = 'PENDING';
CREATE UNIQUE INDEX job_queue_idempotency
    ON job_queue (job_type, coalesce(organization_id::text, ''), idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE job_attempts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    job_id uuid NOT NULL REFERENCES job_queue (id) ON DELETE CASCADE,
    run_number integer NOT NULL DEFAULT 1 CHECK (run_number > 0),
    attempt integer NOT NULL CHECK (attempt > 0),
    worker_id text NOT NULL CHECK (btrim(worker_id) <> ''),
    leased_at timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    outcome job_failure_kind,
    error_code text,
    error_message text,
    retry_delay_ms integer CHECK (retry_delay_ms >= 0),
    claim_origin text NOT NULL DEFAULT 'DIRECT'
        CHECK (claim_origin IN ('DIRECT', 'WORKER_PRESTART')),
    execution_started_persisted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (job_id, run_number, attempt)
);

CREATE TABLE job_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES job_queue (id) ON DELETE CASCADE,
    run_number integer NOT NULL DEFAULT 1 CHECK (run_number > 0),
    attempt integer CHECK (attempt > 0),
    event_type job_event_type NOT NULL,
    stage text CHECK (btrim(stage) <> ''),
    progress_done bigint CHECK (progress_done >= 0),
    progress_total bigint CHECK (progress_total >= 0),
    payload jsonb NOT NULL DEFAULT '{}',
    occurred_at timestamptz NOT NULL DEFAULT now(),
    CHECK (progress_done <= progress_total)
);

CREATE INDEX job_events_job ON job_events (job_id, run_number, id);

CREATE TABLE job_dead_letters (
    job_id uuid PRIMARY KEY REFERENCES job_queue (id) ON DELETE CASCADE,
    job_type text NOT NULL REFERENCES job_definitions (job_type),
    organization_id uuid,
    run_number integer NOT NULL DEFAULT 1 CHECK (run_number > 0),
    attempt integer NOT NULL CHECK (attempt > 0),
    error_code text,
    error_message text,
    payload_snapshot jsonb NOT NULL,
    checkpoint_snapshot jsonb,
    failed_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX job_dead_letters_failed_at ON job_dead_letters (failed_at DESC);

-- Ids ordered by time keep the indexes dense; servers before PostgreSQL 18 cannot make such.
DO $ids$
BEGIN
    IF to_regprocedure('pg_catalog.uuidv7()') IS NOT NULL THEN
        ALTER TABLE job_queue ALTER COLUMN id SET DEFAULT uuidv7();
        ALTER TABLE job_attempts ALTER COLUMN id SET DEFAULT uuidv7();
    END IF;
END
$ids$;
