"""Leases that take too long: slow triggers, and a row whose trigger waits for somebody's lock."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reaper.config import Settings
from reaper.errors import StoreError
from reaper.store import Database
from tests.harness import rows
from tests.reap.conftest import Tick

LIMIT_MS = 1_000
"""Of a statement, in place of 15 s; its wait for a lock ends then as well."""

TRIGGER = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {body}
    RETURN NEW;
END $$;
CREATE TRIGGER dawdle BEFORE UPDATE ON job_queue FOR EACH ROW EXECUTE FUNCTION dawdle()
"""
SLOW = TRIGGER.format(body="PERFORM pg_sleep(0.02);")
HANGS = TRIGGER.format(body="IF NEW.payload ? 'bad' THEN PERFORM pg_sleep(30); END IF;")
WAITS = "CREATE TABLE quota (n integer); INSERT INTO quota VALUES (1);" + TRIGGER.format(
    body="IF NEW.payload ? 'bad' THEN UPDATE quota SET n = n + 1; END IF;"
)
BOTH = TRIGGER.format(
    body="""IF NEW.payload ? 'bad' THEN PERFORM pg_sleep(30); END IF;
    IF NEW.payload ? 'poison' THEN RAISE EXCEPTION 'not this one'; END IF;"""
)


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


@pytest.fixture
def tick(dsn: str, settings: Callable[..., Settings]) -> Iterator[Tick]:
    database = Database(dsn, statement_timeout_ms=LIMIT_MS)
    yield Tick(database, settings)
    database.close()


def deferred(connection: Any) -> list[tuple[str, str, bool]]:
    """Return (job id, SQLSTATE, whether it waits for about a minute)."""
    text = (
        "SELECT job_id::text, sqlstate, until - now() BETWEEN '50 s' AND '60 s' AS ok"
        " FROM reaper.deferred ORDER BY sqlstate"
    )
    return [(row["job_id"], row["sqlstate"], row["ok"]) for row in rows.fetch(connection, text)]


def test_a_batch_that_takes_too_long_is_undone_and_its_rows_are_taken_one_by_one(
    tick: Tick, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows.fetch(connection, SLOW)
    ids = rows.insert_leased(connection, 75)
    result = tick(claim_batch_size=75)
    assert (result.dead_lettered, result.deferred) == (75, ())
    assert [ref.hook_id for ref in tick.rung] == [h["hook_id"] for h in rows.hooks(connection)]
    assert {hook["job_id"] for hook in rows.hooks(connection)} == set(ids)
    (line,) = [line for line in caplog.messages if line.startswith("batch_stuck")]
    assert "batch_size=75" in line
    assert "57014" in line
    assert "REAPER_CLAIM_BATCH_SIZE" in line


def test_a_tick_gets_on_though_a_batch_alone_takes_more_than_its_budget(
    tick: Tick, connection: Any
) -> None:
    """An interval of 0.5 s is spent when the statement's limit is reached."""
    rows.fetch(connection, SLOW)
    rows.insert_leased(connection, 75)
    assert tick(claim_batch_size=75, interval_seconds=0.5).dead_lettered >= 10


def test_a_row_that_hangs_is_set_aside_and_holds_nobody_up(tick: Tick, connection: Any) -> None:
    """Case 3: it is left alone for a minute, and whole batches are reaped again."""
    rows.fetch(connection, HANGS)
    (bad,) = rows.insert_leased(connection, expired_seconds=100, payload='{"bad": 1}')
    rows.insert_leased(connection, 5)
    result = tick(retry_delay_ms=1)
    assert result.dead_lettered == 5
    assert deferred(connection) == [(bad, "57014", True)]
    assert rows.job(connection, bad)["status"] == "LEASED"
    rows.insert_leased(connection, 5)
    assert (tick().batches, rows.job(connection, bad)["status"]) == (1, "LEASED")


def test_a_row_that_waits_for_somebodys_lock_is_set_aside_and_reaped_later(
    tick: Tick, connection: Any, connect: Callable[..., Any]
) -> None:
    """Case 3: its trigger updates a row that another session holds."""
    rows.fetch(connection, WAITS)
    (bad,) = rows.insert_leased(connection, expired_seconds=100, payload='{"bad": 1}')
    rows.insert_leased(connection, 5)
    holder = connect()
    holder.autocommit = False
    rows.fetch(holder, "SELECT n FROM quota FOR UPDATE")
    assert tick(retry_delay_ms=1).dead_lettered == 5
    assert [job_id for job_id, _, _ in deferred(connection)] == [bad]
    holder.rollback()
    rows.fetch(connection, "UPDATE reaper.deferred SET until = now()")
    assert tick().dead_lettered == 1
    assert deferred(connection) == []


def test_a_row_that_hangs_beside_poison_leaves_the_others_to_be_reaped(
    tick: Tick, connection: Any
) -> None:
    rows.fetch(connection, BOTH)
    (poison,) = rows.insert_leased(connection, expired_seconds=200, payload='{"poison": 1}')
    (bad,) = rows.insert_leased(connection, expired_seconds=100, payload='{"bad": 1}')
    rows.insert_leased(connection, 5)
    assert tick().dead_lettered == 5
    assert [row[:2] for row in deferred(connection)] == [(bad, "57014"), (poison, "P0001")]


def test_a_tick_fails_at_once_where_the_whole_table_is_locked(
    tick: Tick, connection: Any, connect: Callable[..., Any]
) -> None:
    """No row is to blame: none is set aside, and the next tick reaps them all."""
    rows.insert_leased(connection, 5)
    holder = connect()
    holder.autocommit = False
    rows.fetch(holder, "LOCK TABLE job_queue")
    with pytest.raises(StoreError) as refused:
        tick()
    assert refused.value.is_stuck
    holder.rollback()
    assert deferred(connection) == []
    assert tick().dead_lettered == 5
