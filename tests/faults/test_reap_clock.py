"""The reaper's host may think it is any time: the database's clock alone counts."""

import json
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness import rows
from tests.harness.processes import Processes
from tests.harness.waiting import eventually

OFFSETS = ["-2h", "+0", "+2h"]

FAKETIME = shutil.which("faketime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FAKETIME is None, reason="no faketime here: apt-get install faketime"),
]

OUTCOME = """
SELECT
    q.status, q.attempt,
    CASE q.status WHEN 'PENDING' THEN q.next_run_at - q.updated_at END AS wait,
    q.updated_at BETWEEN now() - interval '5 minutes' AND now() AS is_now,
    h.due_at - h.created_at AS due
FROM job_queue AS q
LEFT JOIN reaper.terminal_hooks AS h ON h.job_id = q.id::text
ORDER BY q.priority
"""


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def clocked(offset: str) -> list[str]:
    """Return how to start Python on a host whose clock is off."""
    return [str(FAKETIME), "-f", offset, sys.executable]


def test_a_reap_on_a_host_whose_clock_is_off_does_the_same(
    processes: Processes, connection: Any
) -> None:
    """case 19: two hours off either way: identical results."""
    results, outcomes = [], []
    for offset in OFFSETS:
        rows.fetch(connection, "TRUNCATE job_queue, reaper.terminal_hooks CASCADE")
        for priority, (seconds, options) in enumerate(
            [
                (1, {"max_attempts": 1}),
                (1, {"max_attempts": 2}),
                (1, {"prestart": True}),
                (3600, {"max_attempts": 1}),
                (-60, {"max_attempts": 1}),  # live: an hour ahead it would look expired
                (-3 * 3600, {"max_attempts": 1}),
            ]
        ):
            (job_id,) = rows.insert_leased(connection, expired_seconds=seconds, **options)
            change = "UPDATE job_queue SET priority = %s WHERE id = %s"
            rows.fetch(connection, change, (priority, job_id))
        clock = processes.run([*clocked(offset), "-c", "import time; print(int(time.time()))"])
        clock.wait()
        (now,) = rows.fetch(connection, "SELECT extract(epoch FROM now())::int AS now")
        assert abs(int(clock.log) - now["now"] - hours(offset) * 3600) < 120
        reap = processes.run([*clocked(offset), "-m", "reaper", "reap", "--json"])
        assert reap.wait(60) == 0, reap.log
        results.append(json.loads(reap.log))
        outcomes.append(rows.fetch(connection, OUTCOME))
    assert results[0] == results[1] == results[2]
    assert results[0]["processed"] == 4
    assert outcomes[0][:4] == outcomes[1][:4] == outcomes[2][:4]
    assert [row["status"] for row in outcomes[0][4:]] == ["LEASED", "LEASED"]
    assert all(row["is_now"] for found in outcomes for row in found)


def hours(offset: str) -> int:
    return int(offset.rstrip("h"))


@pytest.mark.parametrize("offset", ["-2h", "+2h"])
def test_workers_on_hosts_whose_clocks_are_off_reap_and_deliver(
    processes: Processes, connection: Any, offset: str
) -> None:
    """case 19: beat on time, both workers two hours off: all reaped, every hook run once."""
    ids = rows.insert_leased(connection, 5, job_type="ok")
    live = rows.insert_leased(connection, 5, job_type="ok", expired_seconds=-60)
    for queue in ("reaper", "terminal-hooks"):
        processes.run(
            [*clocked(offset), "-m", "celery", "-A", "reaper", "worker", "-Q", queue, "-c", "1"],
            handlers="tests.harness.handlers",
            interval_seconds=0.5,
        )
    processes.beat(interval_seconds=0.5)
    eventually(lambda: rows.hook_states(connection) == {"completed": len(ids)}, seconds=90)
    assert {effect["job_id"] for effect in rows.effects(connection)} == set(ids)
    assert len(rows.effects(connection)) == len(ids)
    held = rows.fetch(connection, "SELECT id FROM job_queue WHERE status = 'LEASED'")
    assert {row["id"] for row in held} == set(live)
