"""`reaper reap`: the real command, its output and its exit status."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness import rows
from tests.harness.processes import Process, Processes

DENIED = """
CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN RAISE insufficient_privilege; END';
CREATE TRIGGER deny BEFORE UPDATE ON job_queue EXECUTE FUNCTION deny()
"""

COUNTS = "processed=6 released=1 retried=2 dead_lettered=3 skipped=1 deferred=0 published=3\n"


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def ended(process: Process) -> tuple[int, list[str]]:
    """Return its exit status and what it said."""
    return process.wait(60), process.log.splitlines()


def mixed(connection: Any) -> None:
    rows.insert_leased(connection, 3)
    rows.insert_leased(connection, 2, max_attempts=2)
    rows.insert_leased(connection, 1, prestart=True)
    (workflow,) = rows.insert_leased(connection)
    rows.fetch(connection, "UPDATE job_queue SET workflow_step_id = id WHERE id = %s", (workflow,))


def test_reap_prints_the_counts_of_one_tick_and_rings(
    processes: Processes, connection: Any
) -> None:
    """One tick without a worker: exit status 0, the counts on one line."""
    mixed(connection)
    status, said = ended(processes.reaper("reap"))
    assert (status, said) == (0, COUNTS.splitlines())
    status, said = ended(processes.reaper("reap", "--json"))
    assert status == 0
    counts = json.loads(said[-1])
    assert (counts["processed"], counts["skipped"], len(said)) == (0, 1, 1)


def test_reap_prints_one_json_object(processes: Processes, connection: Any) -> None:
    mixed(connection)
    status, said = ended(processes.reaper("reap", "--json"))
    expected = dict(pair.split("=") for pair in COUNTS.split())
    assert (status, len(said)) == (0, 1)
    assert json.loads(said[0]) == {name: int(count) for name, count in expected.items()}


def test_reap_names_poison_and_an_absent_broker_and_still_succeeds(
    processes: Processes, connection: Any
) -> None:
    """Both are taken care of: the row is set aside, the next redelivery rings."""
    ids = rows.insert_leased(connection, 2, payload='{"secret": "do not tell"}')
    rows.fetch(connection, "UPDATE job_queue SET attempt = 0 WHERE id = %s", (ids[0],))
    status, said = ended(processes.at(broker_url="redis://127.0.0.1:1/0").reaper("reap"))
    assert status == 0
    text = "\n".join(said)
    assert "dead_lettered=1 skipped=0 deferred=1 published=0" in text
    assert (
        f"reaper: job {ids[0]} run 1 attempt 0 was set aside: SQLSTATE 23514, constraint "
        "job_events_attempt_check"
    ) in text
    assert "reaper: the broker took 0 of 1 hook messages; the rest is rung by the next" in text
    assert "do not tell" not in text


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("ALTER TABLE job_events RENAME TO hidden", "reaper migrate"),
        ("DROP SCHEMA reaper CASCADE", "reaper migrate"),
        (DENIED, "SQLSTATE 42501"),
    ],
)
def test_reap_exits_1_with_one_line_when_the_tick_failed(
    processes: Processes, connection: Any, statement: str, why: str
) -> None:
    rows.insert_leased(connection)
    rows.fetch(connection, statement)
    status, said = ended(processes.reaper("reap"))
    assert (status, len(said)) == (1, 1), said
    assert said[0].startswith("reaper: the tick failed: ")
    assert why in said[0]


def test_reap_exits_1_with_one_line_when_the_database_is_away(processes: Processes) -> None:
    dsn = "postgresql://somebody:hush@127.0.0.1:1/jobs"
    status, said = ended(processes.at(dsn=dsn).reaper("reap"))
    assert (status, len(said)) == (1, 1), said
    assert said[0].startswith("reaper: the tick failed: PostgreSQL cannot be reached: ")
    assert "hush" not in said[0]


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"claim_batch_size": "0"}, "REAPER_CLAIM_BATCH_SIZE='0' is not allowed: it takes "),
        ({"retry_delay_ms": "soon"}, "REAPER_RETRY_DELAY_MS='soon' is not allowed: it takes "),
        ({"REAPER_DATABASE_URL": None}, "REAPER_DATABASE_URL is not set"),
    ],
)
def test_reap_exits_2_with_one_line_on_a_bad_setting(
    processes: Processes, connection: Any, env: dict[str, Any], line: str
) -> None:
    rows.insert_leased(connection)
    status, said = ended(processes.reaper("reap", **env))
    assert (status, len(said)) == (2, 1), said
    assert said[0].startswith(f"reaper: {line}")
    assert rows.fetch(connection, "SELECT status FROM job_queue") == [{"status": "LEASED"}]
