"""Cases of the reap with real workers: all payloads delivered, processes and servers that die."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from reaper.config import Settings
from reaper.embedded import EmbeddedPostgres
from reaper.store import Database
from tests.faults.handlers_reap import written
from tests.harness import rows
from tests.harness.processes import Processes
from tests.harness.waiting import eventually
from tests.reap.conftest import Tick

SLOW = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep({seconds});
    RETURN NEW;
END $$;
CREATE TRIGGER dawdle BEFORE UPDATE ON job_queue FOR EACH ROW EXECUTE FUNCTION dawdle()
"""

REAPING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'reaper' AND state = 'active'"
    " AND wait_event = 'PgSleep'"
)

UNPAIRED = """
SELECT count(*) AS n
FROM (
    SELECT job_id::text, run_number, attempt FROM job_dead_letters
    EXCEPT ALL
    SELECT job_id, run_number, attempt FROM reaper.terminal_hooks
) AS unpaired
"""


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def expired(connection: Any) -> int:
    text = (
        "SELECT count(*) AS n FROM job_queue WHERE status = 'LEASED' AND lease_expires_at < now()"
    )
    return int(rows.fetch(connection, text)[0]["n"])


def check_whole(connection: Any, jobs: int) -> None:
    """Every job died once: one dead letter, one ledger row, two events; nothing is half done."""
    assert expired(connection) == 0
    assert rows.fetch(connection, UNPAIRED) == [{"n": 0}]
    assert len(rows.hooks(connection)) == jobs
    found = rows.fetch(connection, "SELECT event_type, count(*) AS n FROM job_events GROUP BY 1")
    assert {row["event_type"]: row["n"] for row in found} == {
        "FAILED": jobs,
        "DEAD_LETTERED": jobs,
    }
    outcomes = "SELECT count(*) AS n FROM job_attempts WHERE outcome = 'LEASE_EXPIRED'"
    assert rows.fetch(connection, outcomes) == [{"n": jobs}]


@pytest.mark.slow
def test_four_reaps_at_once_make_one_death_and_one_hook_run_each(
    processes: Processes, connection: Any
) -> None:
    """case 6: 1,000 exhausted leases: 1,000 dead letters, 1,000 ledger rows, each hook run once."""
    ids = rows.insert_leased(connection, 1_000, job_type="ok")
    worker = processes.hook_worker()
    reaps = [processes.reaper("reap", claim_batch_size=50) for _ in range(4)]
    assert [reap.wait(90) for reap in reaps] == [0] * 4
    check_whole(connection, len(ids))
    worker.ready()
    eventually(lambda: rows.hook_states(connection) == {"completed": len(ids)}, seconds=120)
    runs = Counter(effect["job_id"] for effect in rows.effects(connection))
    assert runs == dict.fromkeys(ids, 1)


PAYLOADS: dict[str, tuple[str, Any]] = {
    "a string": ('"a string"', "a string"),
    "a list": ("[]", []),
    "null": ("null", None),
    "1e400": ("1e400", 10**400),
    "25 digits": ("1234567890123456789012345", 1234567890123456789012345),
    "900 deep": ("[" * 900 + "7" + "]" * 900, 7),
    "1 MB": ('"' + "x" * 1_000_000 + '"', "x" * 1_000_000),
}


@pytest.mark.slow
def test_payloads_of_any_shape_are_reaped_and_delivered_unrounded(
    processes: Processes, connection: Any
) -> None:
    """case 9: and where Python cannot decode one, its hook fails with a sentence."""
    expected = {}
    for name, (text, value) in PAYLOADS.items():
        (job_id,) = rows.insert_leased(connection, job_type="tells", payload=text)
        shown = f"900 {value!r}" if name == "900 deep" else written(value)
        expected[job_id] = sha256(shown.encode()).hexdigest()
    (huge,) = rows.insert_leased(connection, job_type="tells", payload="9" * 5_000)
    processes.hook_worker(handlers="tests.faults.handlers_reap").ready()
    assert processes.reaper("reap").wait(60) == 0
    done = {"completed": len(expected), "failed": 1}
    eventually(lambda: rows.hook_states(connection) == done, seconds=60)
    assert {e["job_id"]: e["what"] for e in rows.effects(connection)} == expected
    text = "SELECT state, error FROM reaper.terminal_hooks WHERE job_id = %s"  # no test reads more
    (hook,) = rows.fetch(connection, text, (huge,))
    assert hook["state"] == "failed"
    assert hook["error"].startswith("the payload cannot be decoded in Python: ")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["child", "backend"])
def test_a_reap_killed_in_mid_transaction_leaves_nothing_half_done(
    processes: Processes, connection: Any, victim: str
) -> None:
    """case 16: the next tick reaps normally."""
    rows.insert_leased(connection, 40)
    rows.fetch(connection, SLOW.format(seconds=0.05))
    worker = processes.reap_worker(interval_seconds=0.5)
    processes.beat(interval_seconds=0.5)
    (backend,) = eventually(lambda: rows.fetch(connection, REAPING), seconds=60)
    if victim == "child":
        (child,) = worker.ready().children()
        os.kill(child, signal.SIGKILL)
    else:
        rows.fetch(connection, "SELECT pg_terminate_backend(%s)", (backend["pid"],))
    rows.fetch(
        connection,
        "CREATE OR REPLACE FUNCTION dawdle() RETURNS trigger"
        " LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    )
    eventually(lambda: expired(connection) == 0, seconds=60)
    check_whole(connection, 40)
    assert worker.is_running


@pytest.mark.slow
def test_a_server_crash_in_mid_batch_loses_and_doubles_nothing(
    processes: Processes, own_postgres: EmbeddedPostgres, connect: Callable[..., Any]
) -> None:
    """case 17: PostgreSQL crashes during a 1,000-row batch; the ticks after it finish the work."""
    connection = connect(own_postgres.dsn)
    rows.insert_leased(connection, 1_000)
    rows.fetch(connection, SLOW.format(seconds=0.01))
    there = processes.at(dsn=own_postgres.dsn)
    worker = there.reap_worker(interval_seconds=0.5, claim_batch_size=1_000)
    there.beat(interval_seconds=0.5)
    eventually(lambda: rows.fetch(connection, REAPING), seconds=60)
    own_postgres.restart("immediate")
    connection = connect(own_postgres.dsn)
    assert expired(connection) == 1_000
    rows.fetch(connection, "DROP TRIGGER dawdle ON job_queue")
    before = ticks(connection)
    eventually(lambda: expired(connection) == 0, seconds=60)
    eventually(lambda: ticks(connection) > before)
    assert ticks(connection) - before <= 3  # two, and one that a loaded machine may slip in
    check_whole(connection, 1_000)
    assert "reap_failed" in worker.log
    assert "Traceback" not in worker.log


def ticks(connection: Any) -> int:
    return int(rows.fetch(connection, "SELECT ticks FROM reaper.ticks")[0]["ticks"])


def test_ticks_outlive_their_connections_and_never_pile_them_up(
    dsn: str, settings: Callable[..., Settings], connection: Any
) -> None:
    """case 17: all connections terminated: the next tick works; one connection over 1,000 ticks."""
    tick = Tick(Database(dsn, application_name="counted"), settings)
    count = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'counted'"
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'counted'"
    )
    for number in range(1_000):
        if number % 100 == 50:
            rows.fetch(connection, kill)
            rows.insert_leased(connection)
            assert tick().dead_lettered == 1
            eventually(lambda: rows.fetch(connection, count) == [{"n": 1}])
        else:
            tick()
    assert rows.fetch(connection, count) == [{"n": 1}]
    tick.database.close()


def test_a_tick_survives_the_loss_of_its_connection_at_every_statement(
    dsn: str, settings: Callable[..., Settings], connection: Any
) -> None:
    """case 17: cut off before any of a tick's statements: reaped once, by this tick or the next."""
    for at in range(3):
        (job_id,) = rows.insert_leased(connection)
        tick = Tick(CutOff(dsn, connection, at), settings)
        for _ in range(2):
            try:
                tick()
            except Exception as error:  # noqa: BLE001 -- its kind is asserted
                assert type(error).__name__ == "StoreError"  # noqa: PT017
        assert rows.job(connection, job_id)["status"] == "DEAD_LETTERED"
        assert len(rows.hooks(connection, job_id)) == 1
        tick.database.close()


class CutOff(Database):
    """Loses its server process just before its n-th statement, once."""

    def __init__(self, dsn: str, connection: Any, at: int) -> None:
        super().__init__(dsn, application_name="cut off")
        self._outside, self._left = connection, at

    def execute(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._left == 0:
            pid = self.backend_pid
            rows.fetch(self._outside, "SELECT pg_terminate_backend(%s)", (pid,))
            gone = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            eventually(lambda: not rows.fetch(self._outside, gone, (pid,)))
        self._left -= 1
        return super().execute(name, *args, **kwargs)
