"""The statements stay on their indexes beside a million leases, before and after ANALYZE.

One test, because its rows take long to write: rows as a busy deployment has them, most of them to
be left alone. Pages are counted, not time, so that a loaded machine makes no difference.
"""

import pytest

from reaper import Lease, leases
from reaper.jobs import DeferredRow, HookRef, HookState, ReapResult
from reaper.store import ledger, reaping
from tests.harness import rows
from tests.sql import plans

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOB_ID = "00000000-0000-0000-0000-0000000c3500"  # the 800,000th: leased, its lease lives

ROWS = """
INSERT INTO job_definitions (job_type) SELECT 'type' || n FROM generate_series(0, 9) AS n;

-- A hundred thousand expired leases, nine hundred thousand living ones.
INSERT INTO job_queue (
    id, job_type, payload, status, attempt, max_attempts, lease_expires_at, worker_id, stage
)
SELECT
    lpad(to_hex(n), 32, '0')::uuid, 'type' || n % 10, '{}', 'LEASED', 1, 1 + n % 2,
    now() + (n - 100000) * interval '10 ms', 'w1', 'running'
FROM generate_series(1, 1000000) AS n;

INSERT INTO job_queue (id, job_type, payload, max_attempts, next_run_at, created_at)
SELECT
    lpad(to_hex(n), 32, '0')::uuid, 'type' || n % 10, '{}', 3,
    now() + (n - 1040000) * interval '1 s', now() - (1100000 - n) * interval '1 s'
FROM generate_series(1000001, 1080000) AS n;

INSERT INTO job_attempts (job_id, attempt, worker_id, leased_at, started_at, claim_origin)
SELECT
    lpad(to_hex(n), 32, '0')::uuid, 1, 'w1', now(), now(),
    CASE WHEN n % 3 = 0 THEN 'WORKER_PRESTART' ELSE 'DIRECT' END
FROM (SELECT generate_series(1, 100000) UNION ALL SELECT generate_series(700001, 800000)) AS r (n);

INSERT INTO job_events (job_id, attempt, event_type, stage)
SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 'STAGE_CHANGED', 'running'
FROM generate_series(1, 100000) AS n;

INSERT INTO job_dead_letters (job_id, job_type, attempt, payload_snapshot, failed_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'type1', 1, '{}', now()
FROM generate_series(2000001, 2030000) AS n;

-- A throttled type with a long backlog, and little of anything else that is open.
INSERT INTO reaper.terminal_hooks (
    job_id, run_number, attempt, job_type, payload, reason, failure_kind, state, tries, due_at,
    finished_at, claimed_by
)
SELECT
    n, 1, 1,
    CASE WHEN n <= 100000 THEN 'done' WHEN n <= 200000 THEN 'hangs' ELSE 'type' || n % 10 END,
    '{}', 'LEASE_EXPIRED', 'LEASE_EXPIRED',
    CASE WHEN n <= 100000 THEN 'completed' WHEN n <= 201000 THEN 'pending' ELSE 'running' END,
    CASE WHEN n <= 100000 OR n > 201000 THEN 1 ELSE 0 END,
    now() + (n - 201200) * interval '1 s', CASE WHEN n <= 100000 THEN now() END, 'h1'
FROM generate_series(1, 201400) AS n;

INSERT INTO reaper.hook_types (job_type, timeouts_in_row, probe_at)
VALUES ('hangs', 3, now() - interval '1 second');
"""

LEASE = Lease(JOB_ID, "type0", 1, 1, 3, "w1", None, "running", "{}", None, 60.0)


CALLS = {
    "find_expired": lambda s: reaping.find_expired(s, scan_from="-infinity"),
    "reap_batch": lambda s: reaping.reap_batch(s, batch_size=500, retry_delay_ms=30_000),
    "pick_expired": lambda s: reaping.pick_expired(s, batch_size=500, scan_from="-infinity"),
    "finish_tick": lambda s: reaping.finish_tick(s, ReapResult(counts={("type1", "retried"): 1})),
    "defer_row": lambda s: reaping.defer_row(
        s, DeferredRow(JOB_ID, 1, 1, "23514", None), retry_delay_ms=1000
    ),
    "claim_hook": lambda s: ledger.claim_hook(
        s, hook_id=200_001, try_number=1, worker="h", lease_seconds=9, max_tries={"*": 2}
    ),
    "put_off_hook": lambda s: ledger.claim_hook(
        s, hook_id=200_001, try_number=1, worker="h", lease_seconds=9, max_tries={}
    ),
    "complete_hook": lambda s: ledger.record_outcome(
        s, hook_id=201_001, try_number=1, state=HookState.COMPLETED
    ),
    "record_outcome": lambda s: ledger.record_outcome(
        s, hook_id=201_001, try_number=1, state=HookState.TIMED_OUT, error="e"
    ),
    "release_lost_hooks": lambda s: ledger.release_lost_hooks(s, max_crashes=3, batch_size=1000),
    "hand_back_hooks": lambda s: ledger.hand_back_hooks(s, worker="h1"),
    "count_due_hooks": lambda s: ledger.count_due_hooks(s, count_limit=1_000_000),
    "take_due_hooks": lambda s: ledger.take_due_hooks(s, batch_size=2000),
    "take_probes": ledger.take_probes,
    "mark_unsent": lambda s: ledger.mark_unsent(
        s, [HookRef(n, 1, "", "") for n in range(200_001, 200_101)]
    ),
    "claim_jobs": lambda s: leases.claim(s, "w2", batch_size=10),
    "enqueue_job": lambda s: leases.enqueue(s, "type1", {}, idempotency_key="k"),
    "heartbeat_lease": lambda s: leases.heartbeat(s, LEASE),
    "progress_job": lambda s: leases.progress(s, LEASE, stage="running", done=1, checkpoint=[1]),
    "succeed_job": lambda s: leases.succeed(s, LEASE),
    "fail_job": lambda s: leases.fail(s, LEASE, kind="TERMINAL"),
}
"""The statements that run over and over, as their callers send them."""

PAGES = {
    "reap_batch": 30_000,  # 500 jobs: queue, attempt, events, letters, ledger, foreign keys
    "pick_expired": 2_500,
    "hand_back_hooks": 8_000,  # 400 rows, each rewritten
    "release_lost_hooks": 5_000,  # 199 rows, each rewritten
    "take_due_hooks": 25_000,  # 1,000 rows, each rewritten
    "mark_unsent": 3_000,  # 100 rows, each rewritten
    "claim_jobs": 600,  # 10 jobs; far below what it would take to read all that is claimable
    "count_due_hooks": 1_500,  # 1,000 rows are due, on as many pages
}
"""Pages a statement may look at; others work on one row and may look at ONE_ROW pages."""

ONE_ROW = 150

BIG = ("job_events", "job_attempts", "job_dead_letters", "job_queue", "terminal_hooks")


def write_quickly(cursor, text):
    """Write rows without log, foreign keys and autoanalyze."""
    for table in BIG:
        place = f"reaper.{table}" if table == "terminal_hooks" else table
        cursor.execute(f"ALTER TABLE {place} SET UNLOGGED")
        cursor.execute(f"ALTER TABLE {place} SET (autovacuum_enabled = false)")
    cursor.execute("SET session_replication_role = replica")
    cursor.execute(text)
    cursor.execute("RESET session_replication_role")


BLIND = {"claim_jobs"}
"""Without statistics the planner takes hardly a job for claimable and sorts what there is. It is
right but slow until the first autoanalyze, about a minute after a restore."""

ORDERED = {
    "find_expired": "job_queue_leased",
    "reap_batch": "job_queue_leased",
    "pick_expired": "job_queue_leased",
    "claim_jobs": "job_queue_claimable",
}
"""What takes jobs in the order of an index, so that the first batch costs no more than itself."""


def faults(planned, run, *, blind):
    """What is wrong with a statement's plan, in sentences."""
    read = {relation: planned.scans(relation) for relation in BIG}
    for relation, scans in read.items():
        if "Seq Scan" in {kind for kind, _ in scans}:
            yield f"{run.name} reads all of {relation}"
    if blind:
        return
    limit = PAGES.get(run.name, ONE_ROW)
    if run.pages > limit:
        yield f"{run.name} looks at {run.pages} pages, not at {limit}"
    index = ORDERED.get(run.name)
    kinds = {kind for kind, _ in read["job_queue"]}
    if index and (("Index Scan", index) not in read["job_queue"] or "Bitmap Heap Scan" in kinds):
        yield f"{run.name} does not follow {index}: {read['job_queue']}"


def test_statements_stay_on_their_indexes_beside_a_million_leases(connect):
    """Case 14's plan side: also right after a restore, when nothing was analyzed yet."""
    connection = connect()
    found = []
    with connection.cursor() as cursor:
        write_quickly(cursor, ROWS)
        for stage in ("without statistics", "analyzed"):
            if stage == "analyzed":
                cursor.execute("ANALYZE")
            for name, call in CALLS.items():
                sent = plans.recorded(call, name)
                planned = plans.explain(connection, sent)
                run = plans.explain(connection, sent, analyze=True)
                blind = name in BLIND and stage != "analyzed"
                found += [
                    f"{stage}: {fault}\n{run.text}" for fault in faults(planned, run, blind=blind)
                ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("batch_size", [500, 2_000, 10_000])
def test_large_batch_looks_attempts_up_by_their_key_where_reading_them_all_seems_cheap(
    connect, batch_size
):
    connection = connect()
    rows.insert_leased(connection, 20_000)
    rows.fetch(connection, "ANALYZE")
    sent = plans.recorded(
        lambda s: reaping.reap_batch(s, batch_size=batch_size, retry_delay_ms=1), "reap_batch"
    )
    scans = plans.explain(connection, sent).scans("job_attempts")
    assert "Seq Scan" not in {kind for kind, _ in scans}


FINISHED = """
INSERT INTO job_queue (job_type, payload, status, attempt, max_attempts, finished_at)
SELECT 'demo', '{{}}', (ARRAY['SUCCEEDED', 'DEAD_LETTERED'])[1 + n % 2]::job_status, 1, 1, now()
FROM generate_series(1, {}) AS n
"""


def test_tick_costs_the_same_beside_a_hundred_times_as_many_finished_jobs(connect):
    """Case 14: an idle tick, and one with ten expired leases, at 5,000 and at 500,000 jobs."""
    connection = connect()
    rows.insert_leased(connection, 10, expired_seconds=-3600)
    pages = []
    for finished in (5_000, 495_000):
        with connection.cursor() as cursor:
            write_quickly(cursor, FINISHED.format(finished))
        for seconds in (3600, -3600):  # idle, then with the ten of them expired
            rows.fetch(
                connection,
                "UPDATE job_queue SET lease_expires_at = now() + make_interval(secs => %s)"
                " WHERE status = 'LEASED'",
                (seconds,),
            )
            tick = [
                plans.explain(connection, plans.recorded(call, name), analyze=True)
                for name, call in (
                    ("begin_tick", lambda s: reaping.begin_tick(s, quiet_seconds=0)),
                    ("reap_batch", CALLS["reap_batch"]),
                    ("finish_tick", CALLS["finish_tick"]),
                )
            ]
            pages.append(sum(plan.pages for plan in tick))
    idle_before, busy_before, idle_after, busy_after = pages
    assert idle_before < 60
    assert idle_after <= 1.5 * idle_before, pages
    assert idle_before < busy_before < 1_000
    assert busy_after <= 1.5 * busy_before, pages
