"""Cases of the reap that turn on what other sessions do to its rows, and on what the rows hold."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from reaper import LeaseLost, leases, sql
from reaper.config import Settings
from reaper.store import Database, reaping
from tests.harness import rows
from tests.harness.waiting import eventually
from tests.reap.conftest import Tick

AT_ONCE_SECONDS = 4.0
"""Below the lock timeout (5 s): who stays under it has not waited for a lock."""

RAISES = """
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.payload ? 'bad' THEN RAISE EXCEPTION 'not this one'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER spoil BEFORE UPDATE ON job_queue FOR EACH ROW EXECUTE FUNCTION spoil()
"""


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


@pytest.fixture
def tick(database: Database, settings: Callable[..., Settings]) -> Tick:
    return Tick(database, settings)


@pytest.fixture
def holder(connect: Callable[..., Any]) -> Any:
    """Another session, in the middle of a transaction."""
    holder = connect()
    holder.autocommit = False
    return holder


def everything(connection: Any) -> dict[str, Any]:
    tables = (
        "job_queue",
        "job_attempts",
        "job_events",
        "job_dead_letters",
        "reaper.terminal_hooks",
    )
    return {table: rows.fetch(connection, f"SELECT * FROM {table} ORDER BY 1") for table in tables}


def statuses(connection: Any) -> Counter[str]:
    found = rows.fetch(connection, "SELECT status, count(*) AS n FROM job_queue GROUP BY 1")
    return Counter({row["status"]: row["n"] for row in found})


def test_reap_leaves_a_row_alone_that_another_session_is_finishing(
    tick: Tick, connection: Any, holder: Any
) -> None:
    """case 1: the reap returns at once without it, and adds nothing to it afterwards."""
    (job_id,) = rows.insert_leased(connection)
    rows.fetch(
        holder,
        "UPDATE job_queue SET status = 'SUCCEEDED', lease_expires_at = NULL WHERE id = %s",
        (job_id,),
    )
    began = time.monotonic()
    assert tick().processed == 0
    assert time.monotonic() - began < AT_ONCE_SECONDS
    holder.commit()
    before = everything(connection)
    assert tick().processed == 0
    assert everything(connection) == before
    assert before["job_queue"][0]["status"] == "SUCCEEDED"
    assert (before["job_events"], before["job_dead_letters"]) == ([], [])


def test_reap_dead_letters_exactly_when_the_attempts_are_used_up(
    tick: Tick, connection: Any
) -> None:
    """case 2: max_attempts 1 to 25, no hook and no dead letter for the retried."""
    exhausted, others = set(), set()
    for max_attempts in range(1, 26):
        for attempt in {1, max(max_attempts - 1, 1), max_attempts, max_attempts + 1}:
            ids = rows.insert_leased(connection, attempt=attempt, max_attempts=max_attempts)
            (exhausted if attempt >= max_attempts else others).update(ids)
    result = tick(claim_batch_size=10)
    assert (result.dead_lettered, result.retried) == (len(exhausted), len(others))
    found = everything(connection)
    dead = {row["id"] for row in found["job_queue"] if row["status"] == "DEAD_LETTERED"}
    assert dead == exhausted
    assert {row["job_id"] for row in found["job_dead_letters"]} == exhausted
    assert {row["job_id"] for row in found["reaper.terminal_hooks"]} == exhausted


@pytest.mark.parametrize("obstacle", ["poison", "locked", "workflow", "deferred"])
def test_a_batch_of_rows_that_cannot_be_reaped_starves_nobody(
    tick: Tick, connection: Any, holder: Any, obstacle: str
) -> None:
    """case 3: a healthy younger lease is reaped in the same tick."""
    old = rows.insert_leased(connection, 5, expired_seconds=500, payload='{"bad": 1}')
    (young,) = rows.insert_leased(connection, expired_seconds=5)
    if obstacle == "poison":
        rows.fetch(connection, RAISES)
    elif obstacle == "locked":
        rows.fetch(holder, "SELECT 1 FROM job_queue WHERE id = ANY (%s::uuid[]) FOR UPDATE", (old,))
    elif obstacle == "workflow":
        change = "UPDATE job_queue SET workflow_step_id = id WHERE id = ANY (%s::uuid[])"
        rows.fetch(connection, change, (old,))
    else:
        mark = (
            "INSERT INTO reaper.deferred SELECT id, 1, 1, now() + '1 hour', 'P0001' FROM job_queue"
        )
        rows.fetch(connection, f"{mark} WHERE id = ANY (%s::uuid[])", (old,))
    assert tick(claim_batch_size=5).dead_lettered == 1
    assert rows.job(connection, young)["status"] == "DEAD_LETTERED"
    assert statuses(connection)["LEASED"] == len(old)


def test_reap_never_touches_a_live_lease(tick: Tick, connection: Any, database: Database) -> None:
    """case 4: renewed five seconds ago on a job claimed three hours ago; or in the future."""
    rows.insert_leased(connection, 2)
    rows.fetch(
        connection,
        "UPDATE job_queue SET started_at = now() - '3 hours'::interval,"
        " last_heartbeat_at = now() - '5 s'::interval, lease_expires_at = now() + '55 s'::interval",
    )
    rows.insert_leased(connection, 2, expired_seconds=-3600)
    leases.define_job_type(database, "demo")
    leases.enqueue(database, "demo", {})
    (lease,) = leases.claim(database, "w9", lease_seconds=60)
    leases.heartbeat(database, lease)
    before = everything(connection)
    assert tick().processed == 0
    assert everything(connection) == before


def test_a_zombies_late_report_is_refused_and_writes_nothing(
    tick: Tick, connection: Any, database: Database
) -> None:
    """case 5: reaped while its worker still ran; success with the old fence is an error by name."""
    leases.define_job_type(database, "demo", max_attempts=3)
    leases.enqueue(database, "demo", {})
    (lease,) = leases.claim(database, "w1", lease_seconds=60)
    rows.fetch(connection, "UPDATE job_queue SET lease_expires_at = now() - interval '1 minute'")
    assert tick(retry_delay_ms=1).retried == 1
    before = everything(connection)
    with pytest.raises(LeaseLost):
        leases.succeed(database, lease)
    assert everything(connection) == before
    again = eventually(lambda: leases.claim(database, "w1", lease_seconds=60))
    assert again[0].attempt == lease.attempt + 1
    before = everything(connection)
    with pytest.raises(LeaseLost):
        leases.succeed(database, lease)
    assert everything(connection) == before


def test_a_last_failure_and_an_expiry_at_once_make_one_death(
    tick: Tick, connection: Any, dsn: str
) -> None:
    """case 7: whoever wins, there is one dead letter and one hook."""
    other = Database(dsn)
    leases.define_job_type(other, "demo", max_attempts=1)
    won: Counter[str] = Counter()
    for _ in range(12):
        job_id = leases.enqueue(other, "demo", {})
        (lease,) = leases.claim(other, "w1", lease_seconds=0.05)
        failing = threading.Thread(target=fail_late, args=(other, lease, won))
        failing.start()
        while failing.is_alive() and not tick().processed:
            failing.join(0.001)
        failing.join()
        tick()
        assert rows.job(connection, job_id)["status"] == "DEAD_LETTERED"
        assert len(rows.hooks(connection, job_id)) == 1
        assert [e["event_type"] for e in rows.events(connection, job_id)].count("FAILED") == 1
    assert won.total() == 12
    other.close()


def fail_late(database: Database, lease: leases.Lease, won: Counter[str]) -> None:
    """Fail the job about when its lease ends."""
    time.sleep(0.045)
    try:
        leases.fail(database, lease, code="boom")
    except LeaseLost:
        won["reap"] += 1
    else:
        won["worker"] += 1


@pytest.mark.parametrize(
    "job_type", [" ", "x" * 300, "tab\there", "bell\x07 \x1b[31m", "new\nline"]
)
def test_reap_takes_a_job_type_however_odd(
    tick: Tick, connection: Any, caplog: pytest.LogCaptureFixture, job_type: str
) -> None:
    """case 8: an odd type on the oldest lease is reaped like any other, in one line of the log."""
    rows.fetch(
        connection, "ALTER TABLE job_definitions DROP CONSTRAINT job_definitions_job_type_check"
    )
    (odd,) = rows.insert_leased(connection, job_type=job_type, expired_seconds=100)
    rows.insert_leased(connection, 2)
    caplog.set_level("DEBUG", "reaper")
    result = tick()
    assert (result.dead_lettered, result.deferred) == (3, ())
    assert rows.hooks(connection, odd)[0]["job_type"] == job_type
    assert all("\n" not in line and "\x1b" not in line for line in caplog.messages)


def test_a_trigger_that_raises_on_any_update_is_reported_and_passed_over(
    tick: Tick, connection: Any
) -> None:
    """case 8: later rows are reaped in the same tick, the bad one is reported with its SQLSTATE."""
    rows.fetch(connection, RAISES)
    (bad,) = rows.insert_leased(connection, payload='{"bad": 1}', expired_seconds=100)
    rows.insert_leased(connection, 3)
    result = tick()
    assert [(row.job_id, row.sqlstate) for row in result.deferred] == [(bad, "P0001")]
    assert result.dead_lettered == 3


ANOMALIES = {
    "no expiry": "lease_expires_at = NULL",
    "never expires": "lease_expires_at = 'infinity'",
    "no dead letter": "status = 'DEAD_LETTERED'",
}


def test_reap_never_touches_an_anomaly_silently(tick: Tick, connection: Any) -> None:
    """case 10: what never expires, and a death without a dead letter, are `doctor`'s to show."""
    for change in ANOMALIES.values():
        (job_id,) = rows.insert_leased(connection)
        rows.fetch(connection, f"UPDATE job_queue SET {change} WHERE id = %s", (job_id,))
    before = everything(connection)
    assert tick().processed == 0
    assert everything(connection) == before


def test_reap_takes_an_expired_lease_without_a_worker_and_says_so(
    tick: Tick, connection: Any
) -> None:
    """case 10: LEASED without a worker_id is an ordinary expired lease, with nobody to name."""
    (job_id,) = rows.insert_leased(connection)
    rows.fetch(connection, "UPDATE job_queue SET worker_id = NULL")
    assert tick().dead_lettered == 1
    assert rows.hooks(connection, job_id)[0]["lease_owner"] is None


def test_both_deaths_of_a_requeued_job_can_be_read(tick: Tick, connection: Any) -> None:
    """case 11: each death has its ledger row; the dead letter is the last one's."""
    (job_id,) = rows.insert_leased(connection, payload='{"death": 1}')
    tick()
    rows.fetch(
        connection,
        "UPDATE job_queue SET status = 'LEASED', run_number = 2, attempt = 1, worker_id = 'w2',"
        " payload = '{\"death\": 2}', lease_expires_at = now() - interval '1 minute'",
    )
    result = tick()
    found = rows.hooks(connection, job_id)
    assert [(h["run_number"], h["payload"], h["lease_owner"]) for h in found] == [
        (1, {"death": 1}, "w1"),
        (2, {"death": 2}, "w2"),
    ]
    assert [ref.hook_id for ref in tick.rung] == [hook["hook_id"] for hook in found]
    assert result.terminal[0].run_number == 2
    letter = rows.dead_letter(connection, job_id)
    assert letter is not None
    assert (letter["run_number"], letter["payload_snapshot"]) == (2, {"death": 2})


PAUSE = """
CREATE FUNCTION pause() RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(12);
    RETURN true;
END $$;
ALTER TABLE reaper.deferred RENAME TO deferred_rows;
INSERT INTO reaper.deferred_rows SELECT id, 1, 1, 'epoch', 'P0001' FROM job_queue;
CREATE VIEW reaper.deferred AS SELECT * FROM reaper.deferred_rows WHERE pause()
"""
"""Holds the reap's statement between its snapshot and the first lock it takes on a job."""


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_start_committed_under_the_reaps_eyes_is_not_released(
    connection: Any, holder: Any, dsn: str, max_attempts: int
) -> None:
    """case 12: retried or dead-lettered, never released, and its attempt row survives."""
    (job_id,) = rows.insert_leased(connection, prestart=True, max_attempts=max_attempts)
    rows.fetch(connection, PAUSE)
    rows.fetch(
        holder,
        "WITH q AS (UPDATE job_queue SET stage = 'running', updated_at = now())"
        "UPDATE job_attempts SET execution_started_persisted_at = now()",
    )
    rows.fetch(connection, "SELECT pg_advisory_lock(12)")
    found: list[Any] = []
    reaper = threading.Thread(target=reap_into, args=(dsn, found))
    reaper.start()
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(lambda: rows.fetch(connection, waiting))
    holder.commit()
    rows.fetch(connection, "SELECT pg_advisory_unlock(12)")
    reaper.join(20)
    (batch,) = found
    disposition = {1: "dead_lettered", 2: "retried"}[max_attempts]
    assert batch.counts == {("demo", disposition): 1}
    (attempt,) = rows.attempts(connection, job_id)
    assert attempt["outcome"] == "LEASE_EXPIRED"
    assert attempt["execution_started_persisted_at"] is not None
    assert rows.job(connection, job_id)["attempt"] == 1


def reap_into(dsn: str, found: list[Any]) -> None:
    database = Database(dsn)
    found.append(reaping.reap_batch(database, batch_size=5, retry_delay_ms=1))
    database.close()


def test_reap_does_not_wait_for_a_row_lock(tick: Tick, connection: Any, holder: Any) -> None:
    """case 13: another session holds the oldest lease; all others are done at once."""
    ids = rows.insert_leased(connection, 20)
    rows.fetch(holder, "SELECT 1 FROM job_queue WHERE id = %s FOR UPDATE", (ids[0],))
    began = time.monotonic()
    assert tick(claim_batch_size=3).dead_lettered == len(ids) - 1
    assert time.monotonic() - began < AT_ONCE_SECONDS
    holder.rollback()
    assert tick().dead_lettered == 1


def test_reap_reads_only_the_partial_index_beside_many_finished_rows(connection: Any) -> None:
    """case 14: ten expired leases cost the same beside 2,000 finished rows and beside 100,000."""
    rows.insert_leased(connection, 10, max_attempts=2)
    finished = (
        "INSERT INTO job_queue (job_type, status, max_attempts)"
        " SELECT 'demo', 'SUCCEEDED', 1 FROM generate_series(1, %s)"
    )
    rows.fetch(connection, finished, (2_000,))
    few = reads(connection)
    rows.fetch(connection, finished, (98_000,))
    many = reads(connection)
    assert few["scans"] == many["scans"] == {"job_queue_leased", "job_queue_pkey"}
    assert many["pages"] <= few["pages"] * 1.2 + 20


def test_reap_reads_only_what_has_expired_beside_many_live_leases(connection: Any) -> None:
    """case 14: nor does it walk through the leases that are held."""
    rows.insert_leased(connection, 10, max_attempts=2)
    rows.insert_leased(connection, 2_000, expired_seconds=-3600)
    few = reads(connection)
    rows.insert_leased(connection, 20_000, expired_seconds=-3600)
    many = reads(connection)
    assert few["scans"] == many["scans"] == {"job_queue_leased", "job_queue_pkey"}
    assert many["pages"] <= few["pages"] * 1.2 + 20


def reads(connection: Any) -> dict[str, Any]:
    """Explain a reap, undo it; return how job_queue was read and how many pages were touched."""
    text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql.load("reap_batch")
    parameters: dict[str, Any] = {"batch_size": 500, "retry_delay_ms": 1, "unheard_seconds": 30}
    parameters |= {"scan_from": reaping.SCAN_ALL, "job_ids": None}
    rows.fetch(connection, "BEGIN")
    (plan,) = rows.fetch(connection, text, parameters)[0]["QUERY PLAN"]
    rows.fetch(connection, "ROLLBACK")
    scans = {
        node.get("Index Name", node["Node Type"])
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") == "job_queue" and "Scan" in node["Node Type"]
    }
    top = plan["Plan"]
    return {"scans": scans, "pages": top["Shared Hit Blocks"] + top["Shared Read Blocks"]}


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
