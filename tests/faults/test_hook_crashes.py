"""Crashes under a hook, on a real hook worker: recorded, bounded, nobody else's business."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from tests.harness.rows import effects, fetch, hook_states, hooks
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer, start

LIMITS = {"hook_timeout_seconds": 1, "hook_kill_grace_seconds": 1}


@pytest.fixture
def ringer(connect: Callable[..., Any], dsn: str, broker_url: str) -> Iterator[Ringer]:
    ringer = Ringer(connect(), dsn, broker_url)
    yield ringer
    ringer.close()


def test_crash_of_one_hook_disturbs_no_other_and_ends_after_three(processes, ringer, connect):
    """Case 25: killed by its own hand: recorded, tried again, then failed "worker lost"; the other
    seven slots never notice."""
    connection = connect()
    start(processes, hook_timeout_seconds=20)
    ringer.hooks("slow", 7, payload='{"seconds": 4}')
    eventually(lambda: len(effects(connection, "begin")) == 7)
    crashing = ringer.hook("kills_itself")

    def final() -> bool:
        if ringer.row(crashing)["state"] == "failed":
            return True
        runs = [e for e in effects(connection) if e["job_id"].startswith("kills_itself")]
        row = ringer.row(crashing)
        if row["state"] == "running" and len(runs) == row["tries"]:
            ringer.age()  # of the crashed one; the others are long done or not yet due
            ringer.redeliver()
        return False

    eventually(lambda: len(effects(connection, "end")) == 7)
    eventually(final, 40, 0.2)
    row = ringer.row(crashing)
    assert (row["tries"], row["crashes"], row["error"]) == (3, 3, "worker lost")
    slow = [e["job_id"] for e in effects(connection, "begin") if e["job_id"].startswith("slow")]
    assert sorted(slow) == sorted(set(slow))
    assert {h["state"] for h in hooks(connection) if h["job_type"] == "slow"} == {"completed"}


def test_exit_of_the_process_counts_as_a_crash(processes, ringer, connect):
    """Case 25: os._exit(0) is no success."""
    connection = connect()
    start(processes, hook_max_crashes=1, **LIMITS)
    hook_id = ringer.hook("os_exits")
    eventually(lambda: effects(connection))
    assert ringer.row(hook_id)["state"] == "running"
    ringer.settings = ringer.settings.model_copy(update={"hook_max_crashes": 1})
    ringer.age()
    ringer.redeliver()
    row = ringer.row(hook_id)
    assert (row["state"], row["error"]) == ("failed", "worker lost")


def test_hook_is_not_lost_when_postgres_is_away_at_its_kill(
    processes, ringer, connect, dsn, admin_dsn
):
    """What the parent cannot record is released as lost and runs again."""
    connection, admin = connect(), connect(admin_dsn)
    name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
    worker = start(processes, **LIMITS)
    ringer.hook("deadlocks")
    eventually(lambda: effects(connection))
    fetch(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    worker.wait_for("hard_limit_unrecorded")
    fetch(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert hook_states(connection) == {"running": 1}
    ringer.age()
    ringer.redeliver()
    eventually(lambda: len(effects(connection)) == 2)
    assert hooks(connection)[0]["crashes"] == 1
