"""The original loop's four tests, against a real hook worker.

Their names are the original's: what one process did in memory there is a ledger, a broker and
a worker here.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reaper.reap import run_tick
from tests.harness.rows import effects, hook_states, hooks, insert_leased
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer, start

EXIT_SECONDS = 4.0
"""Within which a worker with REAPER_DRAIN_SECONDS=0.5 has ended, on a machine that is not busy."""


@pytest.fixture
def ringer(connect: Callable[..., Any], dsn: str, broker_url: str) -> Iterator[Ringer]:
    ringer = Ringer(connect(), dsn, broker_url)
    yield ringer
    ringer.close()


def reap(ringer: Ringer) -> None:
    """One tick: expired leases become dead letters, owed hooks and messages."""
    run_tick(ringer.database, ringer.settings, ringer.doorbell.publish, quiet_seconds=0)


def test_notify_handlers_survives_terminal_hook_timeout(processes, ringer):
    """A hanging hook is cut off; the pass completes, and so does the next hook on the same slot."""
    worker = start(processes, hook_concurrency=1, hook_timeout_seconds=1, hook_kill_grace_seconds=1)
    insert_leased(ringer.connection, job_type="hangs", expired_seconds=90)
    insert_leased(ringer.connection, job_type="ok", expired_seconds=60)
    reap(ringer)
    eventually(lambda: hook_states(ringer.connection) == {"timed_out": 1, "completed": 1}, 40)
    assert worker.is_running


def test_notify_handlers_shutdown_interrupts_terminal_hook_fanout(processes, ringer):
    """256 hanging hooks hold up no shutdown: it ends within 4 s with REAPER_DRAIN_SECONDS=0.5, and
    none is lost: all 256 run to a final state after a restart with handlers that end."""
    connection = ringer.connection
    flag = Path(processes.directory, "go")
    worker = start(processes, drain_seconds=0.5)
    insert_leased(connection, 256, job_type="once_hangs", payload=f'{{"flag": "{flag}"}}')
    reap(ringer)
    eventually(lambda: len(effects(connection, "begin")) == 8, 40)
    worker.terminate()
    began = time.monotonic()
    worker.wait()
    assert time.monotonic() - began < EXIT_SECONDS * busy()
    assert hook_states(connection) == {"pending": 256}

    flag.touch()
    start(processes)
    ringer.redeliver_until_completed(256, 90)
    assert len(effects(connection, "end")) == 256
    assert {h["crashes"] for h in hooks(connection)} == {0}


def test_notify_handlers_ignores_non_shutdown_watch_updates(processes, ringer):
    """Signals and remote commands that are no shutdown interrupt no running hook.

    USR1: Celery writes the stacks of its threads to its log. WINCH, URG, CONT: nothing, as for any
    process. (HUP is Celery's restart, a shutdown that comes back: tests/faults/test_drain.py.)
    Remote: ping, reports, a rate limit, a pause of the queue, and `revoke` of a running hook, also
    with `terminate`: its TERM does not reach a handler.
    """
    connection = ringer.connection
    worker = start(processes, hook_timeout_seconds=30)
    ringer.hooks("slow", 3, payload='{"seconds": 4}')
    eventually(lambda: len(effects(connection, "begin")) == 3, 40)
    for number in (signal.SIGUSR1, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT):
        worker.signal(number)
    control = ringer.celery.control
    running = next(iter(control.inspect(timeout=5).active().values()))
    control.revoke([task["id"] for task in running], terminate=True)
    control.rate_limit("reaper.terminal_hook", "100/s")
    control.cancel_consumer("terminal-hooks", reply=True, timeout=2)
    control.add_consumer("terminal-hooks", reply=True, timeout=2)
    assert control.ping(timeout=2)

    eventually(lambda: hook_states(connection) == {"completed": 3}, 40)
    assert len(effects(connection, "end")) == 3
    assert {h["tries"] for h in hooks(connection)} == {1}
    assert worker.is_running
    ringer.hooks("ok", 8)
    eventually(lambda: len(effects(connection, "ok")) == 8, 40)


def test_notify_handlers_reports_lease_expiration_dead_letter_reason(processes, ringer):
    """The hook of an expired lease is told so, and max_attempts None, as in the original."""
    start(processes)
    insert_leased(ringer.connection, job_type="reports", max_attempts=1)
    reap(ringer)
    told = eventually(lambda: effects(ringer.connection), 40)
    assert [e["what"] for e in told] == [
        "LEASE_EXPIRED LEASE_EXPIRED job.lease_expired None reaper"
    ]


def busy() -> float:
    """How much slower than alone this machine is now: its load for each processor."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
