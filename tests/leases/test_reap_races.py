"""Lease holder against reap: cases 1, 5, 7 and 12, and what a zombie may still do."""

from contextlib import suppress

import psycopg2
import pytest

from reaper import Database, LeaseLost, StoreError, leases
from reaper.reap import run_tick
from reaper.store import reaping
from tests.harness import rows
from tests.harness.waiting import eventually
from tests.leases import stand


def tick(database, settings):
    return run_tick(database, settings(), lambda hooks: True, quiet_seconds=0)


def test_reap_returns_at_once_when_a_finish_is_not_committed_yet(database, connect, settings):
    """Case 1: after the commit the row is SUCCEEDED and nothing was added to it."""
    worker, watcher = connect(), connect()
    lease = stand.claimed(database, lease_seconds=2, type_attempts=1)
    worker.autocommit = False
    leases.succeed(Database.borrow(worker), lease)
    over = "SELECT clock_timestamp() > lease_expires_at AS over FROM job_queue"
    eventually(lambda: rows.fetch(watcher, over)[0]["over"])
    assert tick(database, settings).processed == 0
    worker.commit()
    before = stand.everything(watcher, lease.job_id)
    assert tick(database, settings).processed == 0
    assert stand.everything(watcher, lease.job_id) == before
    assert rows.job(watcher, lease.job_id)["status"] == "SUCCEEDED"
    assert stand.event_types(watcher, lease.job_id) == ["ENQUEUED", "LEASED", "SUCCEEDED"]


@pytest.mark.parametrize("type_attempts", [1, 2])
def test_zombie_is_refused_when_its_job_was_reaped(database, connect, settings, type_attempts):
    """Case 5: the late success is refused with an error of its own name; nothing is written."""
    lease = stand.claimed(database, type_attempts=type_attempts)
    leases.start(database, lease)
    stand.expire(connect(), lease.job_id)
    assert tick(database, settings).processed == 1
    before = stand.everything(connect(), lease.job_id)
    for late in (leases.succeed, leases.fail, leases.heartbeat, leases.start):
        with pytest.raises(LeaseLost):
            late(database, lease)
    assert stand.everything(connect(), lease.job_id) == before


@pytest.mark.parametrize("next_worker", ["w1", "w2"])
def test_zombie_is_refused_when_its_job_runs_again(database, connect, settings, next_worker):
    """Case 5, later: also where the same worker has claimed the job again meanwhile."""
    zombie = stand.claimed(database)
    stand.expire(connect(), zombie.job_id)
    tick(database, settings)
    rows.fetch(connect(), "UPDATE job_queue SET next_run_at = now()")
    (lease,) = leases.claim(database, next_worker)
    before = stand.everything(connect(), zombie.job_id)
    for late in (leases.succeed, leases.fail, leases.heartbeat):
        with pytest.raises(LeaseLost):
            late(database, zombie)
    assert stand.everything(connect(), zombie.job_id) == before
    leases.succeed(database, lease)


def test_zombie_of_an_earlier_run_is_refused(database, connect, settings):
    """The attempt is 1 again in the new run; the run number tells them apart."""
    zombie = stand.claimed(database, type_attempts=1)
    stand.expire(connect(), zombie.job_id)
    tick(database, settings)
    stand.requeue(connect(), zombie.job_id)
    (lease,) = leases.claim(database, "w1")
    assert (lease.attempt, lease.worker_id) == (zombie.attempt, zombie.worker_id)
    with pytest.raises(LeaseLost):
        leases.succeed(database, zombie)
    leases.succeed(database, lease)


def test_finish_is_refused_when_the_reap_has_the_row_first(dsn, database, connect):
    """A fail that waits for an uncommitted reap: one dead letter, one hook, of the reap."""
    lease = stand.claimed(database, type_attempts=1)
    stand.expire(connect(), lease.job_id, seconds=0.001)
    late = Database(dsn)
    with database.transaction() as transaction:
        batch = reaping.reap_batch(transaction, batch_size=10, retry_delay_ms=1000)
        waiting = stand.Background(lambda: leases.fail(late, lease, code="late"))
        stand.wait_until_blocked(connect())
    assert len(batch.terminal) == 1
    with pytest.raises(LeaseLost):
        waiting.result()
    assert [hook["reason"] for hook in rows.hooks(connect())] == ["LEASE_EXPIRED"]
    assert rows.dead_letter(connect(), lease.job_id)["error_code"] == "job.lease_expired"
    late.close()


def test_job_dies_once_when_its_last_failure_meets_its_expiry(dsn, database, connect, settings):
    """Case 7: a fail and a reap at the same moment, over and over: one dead letter, one hook."""
    count = 40
    leases.define_job_type(database, "demo", max_attempts=1)
    for _ in range(count):
        leases.enqueue(database, "demo", {})
    held = leases.claim(database, "w1", batch_size=count)
    rows.fetch(
        connect(),
        "UPDATE job_queue AS q SET lease_expires_at = clock_timestamp() + n * interval '25 ms'"
        " FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM job_queue) AS o"
        " WHERE q.id = o.id",
    )
    held.sort(key=lambda lease: lease.job_id)
    reaper, worker = Database(dsn), Database(dsn)
    counts = {"reaped": 0, "failed": 0}

    def reap():
        while rows.fetch(watcher, "SELECT 1 FROM job_queue WHERE status = 'LEASED' LIMIT 1"):
            counts["reaped"] += tick(reaper, settings).dead_lettered

    def fail():
        for lease in held:
            near = "SELECT lease_expires_at < clock_timestamp() + interval '3 ms' AS near"
            near += " FROM job_queue WHERE id = %s AND status = 'LEASED'"
            while (found := rows.fetch(own, near, (lease.job_id,))) and not found[0]["near"]:
                pass
            with suppress(LeaseLost):
                counts["failed"] += leases.fail(worker, lease)

    watcher, own = connect(), connect()
    both = [stand.Background(reap), stand.Background(fail)]
    for thread in both:
        thread.result(60)
    assert counts["reaped"] + counts["failed"] == count
    found = rows.fetch(
        connect(),
        "SELECT q.status::text, count(DISTINCT d.*) AS letters, count(DISTINCT h.hook_id) AS hooks,"
        " count(DISTINCT e.id) AS failures FROM job_queue AS q"
        " LEFT JOIN job_dead_letters AS d ON d.job_id = q.id"
        " LEFT JOIN reaper.terminal_hooks AS h ON h.job_id = q.id::text"
        " LEFT JOIN job_events AS e ON e.job_id = q.id AND e.event_type = 'FAILED' GROUP BY q.id",
    )
    assert found == [
        {"status": "DEAD_LETTERED", "letters": 1, "hooks": 1, "failures": 1}
    ] * count  # fmt: skip
    reaper.close()
    worker.close()


_PAUSE = """
CREATE FUNCTION held_up() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN ''; END $$;
ALTER TABLE reaper.deferred RENAME TO deferred_rows;
CREATE VIEW reaper.deferred AS
SELECT * FROM reaper.deferred_rows
UNION ALL SELECT held_up(), 1, 1, 'infinity', '', '', 1
"""


@pytest.mark.parametrize(("type_attempts", "status"), [(2, "PENDING"), (1, "DEAD_LETTERED")])
def test_job_is_not_released_when_its_start_commits_after_the_reaps_snapshot(
    dsn, database, connect, type_attempts, status
):
    """Case 12: retried or dead-lettered, never released, and its attempt row survives.

    The reap looks at `reaper.deferred` after its snapshot and before its locks; a view in its place
    holds it up there.
    """
    gate, watcher = connect(), connect()
    lease = stand.claimed(database, prestart=True, type_attempts=type_attempts, lease_seconds=2)
    rows.fetch(watcher, _PAUSE)
    starter = connect()
    starter.autocommit = False
    leases.start(Database.borrow(starter), lease)  # within its lease, committed only later
    over = "SELECT clock_timestamp() > lease_expires_at AS over FROM job_queue"
    eventually(lambda: rows.fetch(watcher, over)[0]["over"])
    rows.fetch(gate, "SELECT pg_advisory_lock(4711)")
    reaper = Database(dsn)
    reap = stand.Background(lambda: reaping.reap_batch(reaper, batch_size=9, retry_delay_ms=1000))
    stand.wait_until_blocked(watcher)
    starter.commit()
    rows.fetch(gate, "SELECT pg_advisory_unlock(4711)")
    counts = reap.result().counts
    disposition = "dead_lettered" if type_attempts == 1 else "retried"
    assert counts == {("demo", disposition): 1}
    job = rows.job(watcher, lease.job_id)
    (attempt,) = rows.attempts(watcher, lease.job_id)
    assert (job["status"], job["attempt"]) == (status, 1)
    assert attempt["execution_started_persisted_at"] is not None
    assert attempt["outcome"] == "LEASE_EXPIRED"
    reaper.close()


def test_start_is_refused_when_the_reap_released_the_claim_first(database, connect, settings):
    """The other order of case 12: the worker learns that it must not begin."""
    lease = stand.claimed(database, prestart=True)
    stand.expire(connect(), lease.job_id)
    assert tick(database, settings).released == 1
    with pytest.raises(LeaseLost):
        leases.start(database, lease)
    assert rows.attempts(connect(), lease.job_id) == []


def test_heartbeat_keeps_a_job_that_the_reap_would_take(database, connect, settings):
    """Case 4: claimed three hours ago, renewed just now: untouched."""
    lease = stand.claimed(database, type_attempts=1)
    rows.fetch(connect(), "UPDATE job_attempts SET leased_at = leased_at - interval '3 hours'")
    leases.heartbeat(database, lease, lease_seconds=20)
    before = stand.everything(connect(), lease.job_id)
    assert tick(database, settings).processed == 0
    assert stand.everything(connect(), lease.job_id) == before


def test_serializable_caller_is_told_when_the_reap_was_first(dsn, connect, database, settings):
    """In the caller's stricter transaction PostgreSQL itself refuses; nothing is written."""
    lease = stand.claimed(database, type_attempts=1)
    mine = psycopg2.connect(dsn)
    mine.set_session(isolation_level="REPEATABLE READ")
    with mine.cursor() as cursor:
        cursor.execute("SELECT 1 FROM job_queue")
    stand.expire(connect(), lease.job_id)
    tick(database, settings)
    before = stand.everything(connect(), lease.job_id)
    with pytest.raises(StoreError) as caught:
        leases.succeed(Database.borrow(mine), lease)
    assert caught.value.sqlstate == "40001"
    mine.close()
    assert stand.everything(connect(), lease.job_id) == before
