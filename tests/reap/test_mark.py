"""Where a tick begins: at all leases while that is cheap, else at the mark, and nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from reaper import sql
from reaper.jobs import ReapResult
from reaper.store import Database, reaping
from tests.harness import rows
from tests.reap.conftest import Tick

BEAT = 1e-6
"""`quiet_seconds` of a tick that beat sent: unlike a tick by hand it may begin at the mark."""


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def put_off(connection: Any, *, took: str = "1 second", ago: str = "0") -> None:
    """Make looking at all leases dear, and done so long ago; the mark is now."""
    rows.fetch(
        connection,
        "UPDATE reaper.ticks SET full_scan_took = %s::interval,"
        " full_scan_at = now() - %s::interval, scanned_to = now()",
        (took, ago),
    )


def mark(connection: Any) -> dict[str, Any]:
    text = "SELECT scanned_to, full_scan_at, full_scan_took, started_at FROM reaper.ticks"
    return rows.fetch(connection, text)[0]


def test_tick_begins_at_the_mark_when_looking_at_all_is_dear(tick: Tick, connection: Any) -> None:
    put_off(connection)
    behind = rows.insert_leased(connection, 2, expired_seconds=60)
    rows.fetch(connection, "UPDATE reaper.ticks SET scanned_to = now() - interval '30 s'")
    rows.insert_leased(connection, 3, expired_seconds=10)
    before = mark(connection)
    assert tick(quiet_seconds=BEAT).dead_lettered == 3
    left = rows.fetch(connection, "SELECT id FROM job_queue WHERE status = 'LEASED'")
    assert {row["id"] for row in left} == set(behind)
    after = mark(connection)
    assert after["scanned_to"] > before["scanned_to"]
    assert after["full_scan_at"] == before["full_scan_at"]


@pytest.mark.parametrize(
    ("took", "ago", "found"),
    [
        ("19 ms", "0", True),  # cheap: never put off
        ("1 second", "95 s", False),
        ("1 second", "101 s", True),  # a hundred times its cost is over
        ("1 hour", "290 s", False),
        ("1 hour", "301 s", True),  # five minutes are over
    ],
)
def test_a_lease_behind_the_mark_is_reaped_within_the_stated_time(
    tick: Tick, connection: Any, took: str, ago: str, found: bool
) -> None:
    """At the latest after 100 times the cost of looking at all leases, or five minutes."""
    put_off(connection, took=took, ago=ago)
    rows.insert_leased(connection)
    assert tick(quiet_seconds=BEAT).dead_lettered == found
    assert tick().dead_lettered == (not found)  # a tick by hand always looks at all


def test_a_lease_committed_behind_the_mark_is_reaped(
    tick: Tick, connection: Any, connect: Callable[..., Any]
) -> None:
    """A claim whose transaction outlived its own lease."""
    late = connect()
    late.autocommit = False
    (job_id,) = rows.insert_leased(late, expired_seconds=1)
    assert tick(quiet_seconds=BEAT).processed == 0
    late.commit()
    assert tick(quiet_seconds=BEAT).dead_lettered == 1
    put_off(connection, ago="101 s")
    rows.fetch(connection, "UPDATE job_queue SET status = 'LEASED', lease_expires_at = 'epoch'")
    assert tick(quiet_seconds=BEAT).dead_lettered == 1
    assert len(rows.hooks(connection, job_id)) == 2


def test_a_skipped_lease_is_reaped_after_its_lock_was_rolled_back(
    tick: Tick, connection: Any, connect: Callable[..., Any]
) -> None:
    ids = rows.insert_leased(connection, 2)
    holder = connect()
    holder.autocommit = False
    rows.fetch(holder, "SELECT 1 FROM job_queue WHERE id = %s FOR UPDATE", (ids[0],))
    assert tick(quiet_seconds=BEAT).dead_lettered == 1
    holder.rollback()
    assert tick(quiet_seconds=BEAT).dead_lettered == 1


def test_a_poison_row_that_is_due_again_is_looked_for_behind_the_mark(
    tick: Tick, connection: Any
) -> None:
    (job_id,) = rows.insert_leased(connection)
    rows.fetch(
        connection,
        "INSERT INTO reaper.deferred VALUES (%s, 1, 1, now() + interval '1 hour', 'P0001')",
        (job_id,),
    )
    put_off(connection)
    assert tick(quiet_seconds=BEAT).processed == 0
    rows.fetch(connection, "UPDATE reaper.deferred SET until = now()")
    assert tick(quiet_seconds=BEAT).dead_lettered == 1


def test_ticks_go_on_and_look_at_all_when_the_clock_was_set_back(
    tick: Tick, connection: Any
) -> None:
    """After a failover to a server whose clock is behind nothing waits for it to catch up."""
    put_off(connection)
    rows.insert_leased(connection)
    hour = "now() + interval '1 hour'"
    rows.fetch(connection, f"UPDATE reaper.ticks SET scanned_to = {hour}, started_at = {hour}")
    assert tick(quiet_seconds=BEAT).dead_lettered == 1
    (clock,) = rows.fetch(connection, "SELECT now() AS now")
    assert mark(connection)["scanned_to"] <= clock["now"]
    put_off(connection)
    rows.insert_leased(connection)
    rows.fetch(connection, f"UPDATE reaper.ticks SET full_scan_at = {hour}")
    assert tick(quiet_seconds=BEAT).dead_lettered == 1


def test_a_tick_out_of_time_leaves_its_mark_where_it_stopped(
    tick: Tick, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.insert_leased(connection, 10)
    put_off(connection)
    rows.fetch(connection, "UPDATE reaper.ticks SET scanned_to = '-infinity'")
    monkeypatch.setattr("reaper.config.Settings.tick_budget_seconds", -1.0)
    done = [tick(quiet_seconds=BEAT, claim_batch_size=4).dead_lettered for _ in range(4)]
    assert done == [4, 4, 2, 0]


def test_a_tick_that_failed_leaves_the_mark_alone(tick: Tick, connection: Any) -> None:
    rows.insert_leased(connection)
    put_off(connection, ago="101 s")
    before = mark(connection)
    rows.fetch(connection, "ALTER TABLE job_events RENAME TO hidden")
    with pytest.raises(Exception, match="SQLSTATE 42P01"):
        tick(quiet_seconds=BEAT)
    assert mark(connection) == before | {"started_at": mark(connection)["started_at"]}
    rows.fetch(connection, "ALTER TABLE hidden RENAME TO job_events")
    assert tick(quiet_seconds=BEAT).dead_lettered == 1


def test_one_slow_moment_of_the_machine_puts_nothing_off(
    database: Database, connection: Any
) -> None:
    """A rise of the cost is believed by and by, a fall at once."""
    found = []
    for seconds in (0.001, 9.0, 9.0, 9.0, 0.001):
        reaping.finish_tick(database, ReapResult(), full_scan_seconds=seconds)
        found.append(mark(connection)["full_scan_took"].total_seconds())
    assert found == [0.001, reaping.FREE_SCAN_SECONDS, 0.04, 0.08, 0.001]


def test_an_idle_tick_stays_cheap_while_a_snapshot_is_held_and_leases_churn(
    tick: Tick, connection: Any, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """case 15: what ended leases leave in the index is walked past now and then, not each time."""
    monkeypatch.setattr(reaping, "FREE_SCAN_SECONDS", 1e-4)  # a fifth of what this churn costs
    monkeypatch.setattr(reaping, "SCAN_WAIT_FACTOR", 100_000)
    rows.insert_leased(connection, 500, expired_seconds=-3600)
    holder = connect()
    holder.autocommit = False
    rows.fetch(holder, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    rows.fetch(holder, "SELECT count(*) FROM job_queue")
    for _ in range(20):
        rows.fetch(connection, "UPDATE job_queue SET lease_expires_at = 'epoch', payload = '1'")
        rows.fetch(
            connection, "UPDATE job_queue SET lease_expires_at = now() + '1 hour', payload = '2'"
        )
    for _ in range(8):  # until its cost is believed
        tick()
    scan_from = reaping.begin_tick(tick.database, quiet_seconds=BEAT)
    assert scan_from not in {None, reaping.SCAN_ALL}
    everything, since = buffers(connection, reaping.SCAN_ALL), buffers(connection, str(scan_from))
    assert everything > 200
    assert since < 20


def buffers(connection: Any, scan_from: str) -> int:
    """Return how many pages an idle reap reads."""
    text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql.load("reap_batch")
    parameters = {"batch_size": 500, "retry_delay_ms": 1, "unheard_seconds": 30}
    parameters |= {"scan_from": scan_from, "job_ids": None}
    (plan,) = rows.fetch(connection, text, parameters)[0]["QUERY PLAN"]
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
