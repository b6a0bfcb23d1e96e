-- Creates the schema `reaper`: the ledger of owed terminal hooks and what the tick remembers.
-- Applied once, inside the migration's transaction. Needs CREATE on the database, nothing else.

CREATE TABLE reaper.terminal_hooks (
    hook_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Whose death: copied, because the job row may be deleted before its hook runs.
    job_id text NOT NULL,
    run_number integer NOT NULL,
    attempt integer NOT NULL,
    job_type text NOT NULL,
    organization_id text,
    max_attempts integer,
    lease_owner text,
    payload jsonb NOT NULL,
    -- Of the death.
    reason text NOT NULL,
    failure_kind text NOT NULL,
    error_code text,
    error_message text,
    -- Of the hook. Transitions: pending -> running (claim) -> completed | failed | timed_out |
    -- unhandled, all four final; running -> pending when its worker was lost (crashes + 1), when a
    -- drain hands it back, or for another try (failures + 1).
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'timed_out', 'unhandled')),
    tries integer NOT NULL DEFAULT 0 CHECK (tries >= 0),        -- claims so far; the fence
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),  -- tries that raised or timed out
    crashes integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),    -- tries whose worker was lost
    max_tries integer NOT NULL DEFAULT 1 CHECK (max_tries > 0), -- of the handler, set by the claim
    due_at timestamptz NOT NULL,  -- when to act if nothing has happened
    claimed_by text,
    started_at timestamptz,
    finished_at timestamptz,
    error text,                   -- of the handler; bounded, cleaned
    owed_since timestamptz NOT NULL DEFAULT now(),  -- the death, or a person's last retry
    created_at timestamptz NOT NULL DEFAULT now()
)
-- Each row is updated twice (claim, outcome): leave room for it on the page.
WITH (fillfactor = 70);

COMMENT ON TABLE reaper.terminal_hooks IS
    'The ledger: one row per dead letter, born in its transaction; the hook owed for it and how that went.';

CREATE INDEX terminal_hooks_job ON reaper.terminal_hooks (job_id, run_number, attempt);
-- Redelivery and the search for lost hooks read only what is still open. By type first, so that the
-- backlog of a throttled type is stepped over.
CREATE INDEX terminal_hooks_pending ON reaper.terminal_hooks (job_type, due_at, hook_id)
    WHERE state = 'pending';
CREATE INDEX terminal_hooks_running ON reaper.terminal_hooks (due_at) WHERE state = 'running';
-- Pruning and the roll-up read what has finished, by time.
CREATE INDEX terminal_hooks_finished ON reaper.terminal_hooks (finished_at)
    WHERE state IN ('completed', 'failed', 'timed_out', 'unhandled');
-- What a person looks for first; completed hooks, the many, are not in it.
CREATE INDEX terminal_hooks_unhappy ON reaper.terminal_hooks (job_type, state)
    WHERE state IN ('failed', 'timed_out', 'unhandled');

CREATE TABLE reaper.hook_types (
    job_type text PRIMARY KEY,
    timeouts_in_row integer NOT NULL DEFAULT 0 CHECK (timeouts_in_row >= 0),
    probe_at timestamptz,   -- a throttled type's next single try
    probe_hook_id bigint    -- the one hook that may run while the type is throttled
);

COMMENT ON TABLE reaper.hook_types IS
    'Job types whose hooks timed out last: after a few in a row a type is throttled.';

CREATE TABLE reaper.ticks (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    started_at timestamptz NOT NULL DEFAULT '-infinity',  -- also the guard against a pile-up
    finished_at timestamptz,
    -- Of the last tick that finished:
    released integer NOT NULL DEFAULT 0,
    retried integer NOT NULL DEFAULT 0,
    dead_lettered integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    deferred integer NOT NULL DEFAULT 0,
    ticks bigint NOT NULL DEFAULT 0,  -- ever finished
    -- Every lease that expires before this was looked at: the next tick may begin here, past the
    -- dead index entries a held snapshot keeps; see begin_tick.sql.
    scanned_to timestamptz NOT NULL DEFAULT '-infinity',
    full_scan_at timestamptz NOT NULL DEFAULT '-infinity',  -- when a tick last looked at all
    full_scan_took interval NOT NULL DEFAULT '0'            -- until it met its first lease
)
WITH (fillfactor = 10);

INSERT INTO reaper.ticks DEFAULT VALUES;

COMMENT ON TABLE reaper.ticks IS 'One row: the last tick. The dead-man''s switch reads it.';

CREATE TABLE reaper.tick_totals (
    job_type text NOT NULL,
    disposition text NOT NULL CHECK (disposition IN ('released', 'retried', 'dead_lettered')),
    total bigint NOT NULL,
    PRIMARY KEY (job_type, disposition)
);

COMMENT ON TABLE reaper.tick_totals IS 'Leases reaped ever, by type and disposition.';

CREATE TABLE reaper.hook_totals (
    job_type text NOT NULL,
    state text NOT NULL CHECK (state IN ('completed', 'failed', 'timed_out', 'unhandled')),
    upper_seconds double precision NOT NULL,  -- of the histogram's bucket; Infinity is the last
    total bigint NOT NULL,
    seconds double precision NOT NULL,        -- how long those hooks ran, together
    PRIMARY KEY (job_type, state, upper_seconds)
);

COMMENT ON TABLE reaper.hook_totals IS
    'Hooks finished up to reaper.hook_roll_up.counted_until, by type, outcome and duration. Survives pruning.';

CREATE TABLE reaper.hook_roll_up (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    counted_until timestamptz NOT NULL DEFAULT '-infinity'
)
WITH (fillfactor = 10);

INSERT INTO reaper.hook_roll_up DEFAULT VALUES;

COMMENT ON TABLE reaper.hook_roll_up IS
    'One row: hooks that finished up to then are in reaper.hook_totals, later ones only in the ledger.';

CREATE TABLE reaper.deferred (
    job_id text PRIMARY KEY,
    run_number integer NOT NULL,
    attempt integer NOT NULL,
    until timestamptz NOT NULL,
    sqlstate text NOT NULL,
    constraint_name text,
    times integer NOT NULL DEFAULT 1
);

COMMENT ON TABLE reaper.deferred IS
    'Poison rows: expired leases whose transition fails, set aside until the given time.';
