"""Poison rows: isolated, reported without their contents, never in the way of healthy ones."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from reaper.errors import StoreError
from tests.harness import rows
from tests.reap.conftest import EACH_SERVER, Tick

pytestmark = EACH_SERVER

SECRET = "do not tell"  # noqa: S105 -- a mark in the payload, looked for in the log
POISON = '{"bad": "do not tell"}'

TRIGGER = """
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.payload ? 'bad' THEN {action} END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER spoil BEFORE UPDATE ON job_queue FOR EACH ROW EXECUTE FUNCTION spoil()
"""

RAISES = TRIGGER.format(action="RAISE EXCEPTION 'not this one: %', NEW.payload;")

FOREIGN_KEY = """
CREATE TABLE known (bad text PRIMARY KEY);
ALTER TABLE job_dead_letters
    ADD bad text GENERATED ALWAYS AS (payload_snapshot ->> 'bad') STORED,
    ADD CONSTRAINT is_known FOREIGN KEY (bad) REFERENCES known
"""

CHECK = "ALTER TABLE job_queue ADD CONSTRAINT held CHECK (status = 'LEASED' OR NOT payload ? 'bad')"

KINDS = {
    "a trigger raises": (RAISES, "P0001", None),
    "a trigger returns NULL": (TRIGGER.format(action="RETURN NULL;"), "22012", None),
    "a trigger keeps the lease": (
        TRIGGER.format(action="NEW.status := 'LEASED';"),
        "22012",
        None,
    ),
    "a trigger divides by zero": (TRIGGER.format(action="NEW.priority := 1 / 0;"), "22012", None),
    "a check": (CHECK, "23514", "held"),
    "a check of the dead letters": (
        "ALTER TABLE job_dead_letters ADD CONSTRAINT clean CHECK (NOT payload_snapshot ? 'bad')",
        "23514",
        "clean",
    ),
    "a foreign key": (FOREIGN_KEY, "23503", "is_known"),
    "a deferred foreign key": (
        FOREIGN_KEY + " DEFERRABLE INITIALLY DEFERRED",
        "23503",
        "is_known",
    ),
    "a deferred trigger": (
        """
        CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.payload_snapshot ? 'bad' THEN RAISE EXCEPTION 'late'; END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER spoil AFTER INSERT ON job_dead_letters
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION spoil()
        """,
        "P0001",
        None,
    ),
}


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def leased(connection: Any, pattern: str) -> tuple[list[str], list[str]]:
    """Insert one lease a character, oldest first: `x` is poison. Return (poison, healthy)."""
    found: dict[str, list[str]] = {"x": [], ".": []}
    for number, kind in enumerate(pattern):
        found[kind] += rows.insert_leased(
            connection,
            payload=POISON if kind == "x" else "{}",
            expired_seconds=1000 - number,
        )
    return found["x"], found["."]


def deferred(connection: Any) -> dict[str, tuple[Any, ...]]:
    found = rows.fetch(connection, "SELECT * FROM reaper.deferred")
    return {r["job_id"]: (r["sqlstate"], r["constraint_name"], r["times"]) for r in found}


@pytest.mark.parametrize("kind", KINDS)
def test_reap_isolates_poison_and_reaps_the_healthy_in_the_same_tick(
    tick: Tick, connection: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A row whose transition fails takes no other with it and is reported without its contents."""
    ddl, sqlstate, constraint = KINDS[kind]
    rows.fetch(connection, ddl)
    poison, healthy = leased(connection, "x...x....x")
    before = [rows.job(connection, job_id) for job_id in poison]
    caplog.set_level(logging.DEBUG, "reaper")

    result = tick()

    assert (result.processed, result.dead_lettered, result.batches) == (7, 7, 1)
    assert {rows.job(connection, job_id)["status"] for job_id in healthy} == {"DEAD_LETTERED"}
    assert {hook["job_id"] for hook in rows.hooks(connection)} == set(healthy)
    assert {record.job_id for record in result.terminal} == set(healthy)
    assert [rows.job(connection, job_id) for job_id in poison] == before
    assert all(rows.events(connection, job_id) == [] for job_id in poison)
    assert [(row.job_id, row.sqlstate, row.constraint) for row in result.deferred] == [
        (job_id, sqlstate, constraint) for job_id in poison
    ]
    assert deferred(connection) == dict.fromkeys(poison, (sqlstate, constraint, 1))
    lines = [line for line in caplog.messages if line.startswith("row_deferred")]
    assert len(lines) == len(poison)
    for job_id, line in zip(poison, lines, strict=True):
        assert f"job_id={job_id} " in line
        assert f" run_number=1 attempt=1 sqlstate={sqlstate}" in line
    assert SECRET not in caplog.text


def test_poison_waits_for_the_retry_delay_and_is_then_tried_again(
    tick: Tick, connection: Any
) -> None:
    rows.fetch(connection, RAISES)
    (job_id,), _ = leased(connection, "x")
    assert len(tick(retry_delay_ms=90_000).deferred) == 1
    wait = "SELECT until - now() BETWEEN '85 s' AND '90 s' AS ok FROM reaper.deferred"
    assert rows.fetch(connection, wait) == [{"ok": True}]
    for _ in range(2):
        result = tick()
        assert (result.deferred, result.processed) == ((), 0)
    due(connection)
    assert len(tick().deferred) == 1
    assert deferred(connection)[job_id] == ("P0001", None, 2)


def test_poison_is_reaped_once_it_is_cured_and_its_mark_is_gone(
    tick: Tick, connection: Any
) -> None:
    rows.fetch(connection, RAISES)
    (job_id,), _ = leased(connection, "x")
    tick()
    rows.fetch(connection, "DROP TRIGGER spoil ON job_queue")
    due(connection)
    assert tick(quiet_seconds=1e-6).dead_lettered == 1
    assert deferred(connection) == {}
    assert rows.job(connection, job_id)["status"] == "DEAD_LETTERED"


def test_a_later_attempt_of_a_poison_row_is_not_held_back(tick: Tick, connection: Any) -> None:
    rows.fetch(connection, RAISES)
    (job_id,), _ = leased(connection, "x")
    tick()
    rows.fetch(connection, "DROP TRIGGER spoil ON job_queue")
    rows.fetch(connection, "UPDATE job_queue SET attempt = 2")
    assert tick().dead_lettered == 1
    assert rows.job(connection, job_id)["attempt"] == 2
    assert deferred(connection) == {}


def test_a_mark_is_forgotten_when_its_job_was_deleted_or_finished(
    tick: Tick, connection: Any
) -> None:
    rows.fetch(connection, RAISES)
    poison, _ = leased(connection, "xxx")
    tick()
    rows.fetch(connection, "ALTER TABLE job_queue DISABLE TRIGGER USER")
    rows.fetch(connection, "DELETE FROM job_queue WHERE id = %s", (poison[0],))
    rows.fetch(connection, "UPDATE job_queue SET status = 'SUCCEEDED' WHERE id = %s", (poison[1],))
    tick()
    assert set(deferred(connection)) == {poison[2]}


def test_a_lease_of_attempt_zero_is_poison_of_its_own_making(tick: Tick, connection: Any) -> None:
    """The queue allows attempt 0, the events do not: reported, and the others go on."""
    ids = rows.insert_leased(connection, 3)
    rows.fetch(connection, "UPDATE job_queue SET attempt = 0 WHERE id = %s", (ids[1],))
    result = tick()
    assert [(row.job_id, row.attempt, row.sqlstate) for row in result.deferred] == [
        (ids[1], 0, "23514")
    ]
    assert result.dead_lettered == 2


def test_a_batch_of_nothing_but_poison_ends_and_the_next_lease_is_reaped(
    tick: Tick, connection: Any
) -> None:
    rows.fetch(connection, RAISES)
    poison, healthy = leased(connection, "x" * 8 + "." + "x" * 3 + ".")
    result = tick(claim_batch_size=4)
    assert (result.dead_lettered, len(result.deferred)) == (len(healthy), len(poison))


def test_isolation_commits_what_it_has_when_its_time_is_up(
    tick: Tick, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much poison there is, every isolation gets on and none is lost."""
    monkeypatch.setattr("reaper.reap.ISOLATION_SECONDS", 0.0)
    rows.fetch(connection, RAISES)
    poison, healthy = leased(connection, "xx..x...x")
    result = tick()
    assert (len(result.deferred), result.dead_lettered) == (len(poison), len(healthy))
    assert result.batches > 1


def test_a_failure_that_is_no_rows_fault_ends_the_tick(tick: Tick, connection: Any) -> None:
    rows.fetch(connection, RAISES.replace("RAISE EXCEPTION 'not this one: %', NEW.payload", DENIED))
    leased(connection, ".x")
    with pytest.raises(StoreError, match="SQLSTATE 42501"):
        tick()
    assert deferred(connection) == {}
    assert rows.hooks(connection) == []


DENIED = "RAISE insufficient_privilege"


def due(connection: Any) -> None:
    rows.fetch(connection, "UPDATE reaper.deferred SET until = now() - interval '1 s'")
