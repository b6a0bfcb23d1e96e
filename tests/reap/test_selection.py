"""Which leases a reap takes: expired by the database's clock, oldest first, no workflow's."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from reaper.store import Database, reaping
from tests.harness import rows
from tests.reap.conftest import EACH_SERVER, Tick

pytestmark = EACH_SERVER


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def test_reap_takes_a_lease_only_once_its_expiry_has_passed(connection: Any) -> None:
    """A lease that expires exactly now is not expired."""
    past, at_now, future = rows.insert_leased(connection, 3, max_attempts=2)
    connection.autocommit = False
    for microseconds, job_id in ((-1, past), (0, at_now), (1, future)):
        rows.fetch(
            connection,
            "UPDATE job_queue SET lease_expires_at = now() + %s * interval '1 microsecond'"
            " WHERE id = %s",
            (microseconds, job_id),
        )
    batch = reaping.reap_batch(Database.borrow(connection), batch_size=10, retry_delay_ms=1)
    statuses = [rows.job(connection, job_id)["status"] for job_id in (past, at_now, future)]
    assert statuses == ["PENDING", "LEASED", "LEASED"]
    assert batch.picked == 1


def test_reap_ignores_an_old_lease_when_the_job_is_not_leased(tick: Tick, connection: Any) -> None:
    statuses = ["PENDING", "SUCCEEDED", "DEAD_LETTERED", "CANCELED"]
    ids = rows.insert_leased(connection, len(statuses))
    for status, job_id in zip(statuses, ids, strict=True):
        change = "UPDATE job_queue SET status = %s::job_status WHERE id = %s"
        rows.fetch(connection, change, (status, job_id))
    before = [rows.job(connection, job_id) for job_id in ids]
    assert tick().processed == 0
    assert [rows.job(connection, job_id) for job_id in ids] == before


def test_reap_takes_leases_whose_expiry_python_cannot_read(tick: Tick, connection: Any) -> None:
    for expiry in ("-infinity", "0044-03-15 12:00:00+00 BC"):
        rows.insert_leased(connection, 2)
        change = "UPDATE job_queue SET lease_expires_at = %s WHERE status = 'LEASED'"
        rows.fetch(connection, change, (expiry,))
        assert tick(claim_batch_size=1).dead_lettered == 2


def test_reap_takes_the_oldest_leases_first_when_there_are_more_than_a_batch(
    connection: Any, database: Database
) -> None:
    young = rows.insert_leased(connection, 3, expired_seconds=10)
    old = rows.insert_leased(connection, 3, expired_seconds=100)
    batch = reaping.reap_batch(database, batch_size=4, retry_delay_ms=1)
    assert [record.job_id for record in batch.terminal] == [*old, young[0]]
    assert (batch.picked, batch.drained) == (4, False)
    left = rows.fetch(connection, "SELECT id FROM job_queue WHERE status = 'LEASED'")
    assert {row["id"] for row in left} == set(young[1:])


def test_tick_drains_every_batch_until_one_comes_back_short(tick: Tick, connection: Any) -> None:
    rows.insert_leased(connection, 23)
    result = tick(claim_batch_size=5)
    assert (result.dead_lettered, result.batches, result.published) == (23, 5, 23)
    assert tick(claim_batch_size=5).processed == 0


def test_reap_leaves_workflow_rows_alone_and_counts_them(tick: Tick, connection: Any) -> None:
    """Reaping one would strand its run."""
    workflow = rows.insert_leased(connection, 3, expired_seconds=100)
    rows.fetch(connection, "UPDATE job_queue SET workflow_step_id = %s", (str(uuid4()),))
    before = [rows.job(connection, job_id) for job_id in workflow]
    plain = rows.insert_leased(connection, 2)
    live = rows.insert_leased(connection, expired_seconds=-100)
    rows.fetch(connection, "UPDATE job_queue SET workflow_step_id = id WHERE id = %s", (live[0],))
    result = tick(claim_batch_size=1)
    assert (result.processed, result.skipped) == (len(plain), len(workflow))
    assert [rows.job(connection, job_id) for job_id in workflow] == before


def test_reap_works_beside_columns_it_does_not_know(tick: Tick, connection: Any) -> None:
    """A live reference database may have more columns, in any order."""
    for table in ("job_queue", "job_attempts", "job_events", "job_dead_letters"):
        rows.fetch(connection, f"ALTER TABLE {table} ADD output jsonb, ADD more text DEFAULT 'x'")
    rows.insert_leased(connection, 2)
    rows.insert_leased(connection, 2, max_attempts=2)
    result = tick()
    assert (result.dead_lettered, result.retried) == (2, 2)
