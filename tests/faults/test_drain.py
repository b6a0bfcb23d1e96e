"""The end of a hook worker, by every signal that ends one: nothing is lost, and it is certain."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reaper.jobs import HookState
from reaper.store import Database, ledger
from tests.harness.processes import Process
from tests.harness.rows import effects, fetch, hook_states, hooks
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer, start

LIMITS = {"hook_timeout_seconds": 6, "hook_kill_grace_seconds": 1}

MARGIN_SECONDS = 10.0
"""Celery leaves 1 to 3 s after the last hook; the rest is for a busy machine."""

CELERY = str(Path(sys.executable).with_name("celery"))


@pytest.fixture
def ringer(connect: Callable[..., Any], dsn: str, broker_url: str) -> Iterator[Ringer]:
    ringer = Ringer(connect(), dsn, broker_url)
    yield ringer
    ringer.close()


def begun(ringer: Ringer, count: int) -> None:
    """Wait until `count` handlers have begun."""
    eventually(lambda: len(begins(ringer)) >= count, 30)


def begins(ringer: Ringer) -> list[dict[str, Any]]:
    return [e for e in effects(ringer.connection) if e["what"].startswith("begin")]


def handed_back(ringer: Ringer, count: int) -> None:
    """Assert that `count` hooks are owed again, at once, and that nothing counts against them."""
    rows = hooks(ringer.connection)
    assert [h["state"] for h in rows] == ["pending"] * count
    assert {(h["tries"], h["crashes"], h["failures"]) for h in rows} == {(1, 0, 0)}
    now = fetch(ringer.connection, "SELECT clock_timestamp() AS now")[0]["now"]
    assert all(h["due_at"] <= now for h in rows)


def ends_within(worker: Process, seconds: float) -> float:
    """Wait for its end, fail where it comes late; return after how many seconds it came."""
    began = time.monotonic()
    worker.wait(seconds + MARGIN_SECONDS)
    return time.monotonic() - began


def test_term_lets_eight_hooks_finish_and_leaves_five_hundred_where_they_are(processes, ringer):
    """Case 30: nothing new starts, the rest runs after a restart, every effect exactly once."""
    worker = start(processes, **LIMITS)
    connection = ringer.connection
    ringer.hooks("slow", 8, payload='{"seconds": 3}')
    begun(ringer, 8)
    ringer.hooks("ok", 500)
    worker.terminate()
    ends_within(worker, LIMITS["hook_timeout_seconds"])
    assert worker.wait() == 0
    assert hook_states(connection) == {"completed": 8, "pending": 500}
    assert len(effects(connection, "end")) == 8

    start(processes, **LIMITS)
    eventually(lambda: hook_states(connection) == {"completed": 508}, 60)
    done = [(e["job_id"], e["what"]) for e in effects(connection)]
    assert len(done) == len(set(done)) == 516


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_signal_to_the_whole_process_group_lets_running_hooks_finish(processes, ringer, number):
    """A TERM from systemd's control-group mode or a Ctrl-C reaches the children too: they go on."""
    worker = start(processes, **LIMITS)
    ringer.hooks("slow", 3, payload='{"seconds": 2}')
    begun(ringer, 3)
    os.killpg(worker.pid, number)
    ends_within(worker, LIMITS["hook_timeout_seconds"])
    assert hook_states(ringer.connection) == {"completed": 3}
    assert {h["crashes"] for h in hooks(ringer.connection)} == {0}


def test_second_term_changes_nothing(processes, ringer):
    """An impatient supervisor does not cut hooks off before the window is over."""
    worker = start(processes, **LIMITS)
    ringer.hooks("slow", 2, payload='{"seconds": 2}')
    begun(ringer, 2)
    worker.terminate()
    worker.wait_for("Warm shutdown")
    worker.terminate()
    ends_within(worker, LIMITS["hook_timeout_seconds"])
    assert hook_states(ringer.connection) == {"completed": 2}


def test_window_is_long_enough_for_any_running_hook_when_nothing_is_set(processes, ringer):
    """The derived window: hard limit, 0.1 s a kill, 1 s; hanging hooks reach their limits in it."""
    worker = start(processes, hook_timeout_seconds=2, hook_kill_grace_seconds=1)
    worker.wait_for("drain_seconds=4.8")  # 2 + 1 + 8 x 0.1 + 1
    ringer.hook("hangs")
    ringer.hook("deadlocks")
    begun(ringer, 2)
    worker.terminate()
    ends_within(worker, 4.8)
    assert hook_states(ringer.connection) == {"timed_out": 2}
    assert "drain_cut_off" not in worker.log


@pytest.mark.parametrize("frozen", [False, True], ids=["alive", "frozen"])
def test_hanging_hooks_are_handed_back_when_the_window_is_over(
    processes, connect, dsn, own_valkey, frozen
):
    """TERM ends the worker within window and margin also where Redis is frozen: Celery alone would
    hang. What was cut off is owed again at once and is no crash."""
    ringer = Ringer(connect(), dsn, own_valkey.url)
    worker = start(processes.at(broker_url=own_valkey.url), drain_seconds=0.5)
    ringer.hooks("hangs", 3)
    begun(ringer, 3)
    if frozen:
        own_valkey.pause()
    worker.terminate()
    assert ends_within(worker, 0.5) < 0.5 + MARGIN_SECONDS
    own_valkey.resume()
    assert not living(worker)
    handed_back(ringer, 3)
    ringer.close()


@pytest.mark.parametrize("frozen", [False, True], ids=["alive", "frozen"])
def test_quit_ends_the_worker_at_once_and_hands_hooks_back(
    processes, connect, dsn, own_valkey, frozen
):
    """QUIT does not wait for hooks that are deaf to Celery's own TERM."""
    ringer = Ringer(connect(), dsn, own_valkey.url)
    worker = start(processes.at(broker_url=own_valkey.url), hook_timeout_seconds=40)
    ringer.hooks("deadlocks", 3)
    begun(ringer, 3)
    if frozen:
        own_valkey.pause()
    worker.signal(signal.SIGQUIT)
    assert ends_within(worker, 1) < 1 + MARGIN_SECONDS
    own_valkey.resume()
    handed_back(ringer, 3)
    ringer.close()


def test_remote_shutdown_is_bounded_by_the_window(processes, ringer):
    """`celery control shutdown` sends no signal; the watchdog starts all the same."""
    worker = start(processes, hook_timeout_seconds=40, drain_seconds=0.5)
    ringer.hooks("deadlocks", 2)
    begun(ringer, 2)
    ringer.celery.control.broadcast("shutdown")
    ends_within(worker, 0.5)
    handed_back(ringer, 2)


def test_drain_holds_when_the_queue_was_paused_before(processes, ringer):
    """`cancel_consumer` stops new hooks; the running ones are still bounded and handed back."""
    worker = start(processes, hook_timeout_seconds=40, drain_seconds=0.5)
    ringer.hooks("deadlocks", 2)
    begun(ringer, 2)
    ringer.celery.control.broadcast("cancel_consumer", {"queue": "terminal-hooks"})
    worker.wait_for("Canceling queue terminal-hooks")
    worker.terminate()
    ends_within(worker, 0.5)
    handed_back(ringer, 2)


def test_hup_restarts_the_worker_after_its_hooks_have_finished(processes, ringer):
    """HUP is Celery's restart: running hooks finish, the same process starts anew and consumes."""
    command = [CELERY, "-A", "reaper", "worker", "-Q", "terminal-hooks", "-l", "INFO"]
    handlers = "tests.worker.handlers_unruly"
    worker = processes.run(command, handlers=handlers, **LIMITS).ready()
    ringer.hooks("slow", 3, payload='{"seconds": 2}')
    begun(ringer, 3)
    worker.signal(signal.SIGHUP)
    eventually(lambda: hook_states(ringer.connection) == {"completed": 3})
    ringer.hook("ok")
    eventually(lambda: effects(ringer.connection, "ok"), 40)
    assert worker.is_running


def test_thread_left_behind_by_a_handler_does_not_hold_up_the_end(processes, ringer):
    """A thread that is no daemon keeps its child from ending; the window bounds that too."""
    worker = start(processes, hook_concurrency=1, drain_seconds=1, **LIMITS)
    ringer.hook("leaves_thread")
    eventually(lambda: hook_states(ringer.connection) == {"completed": 1})
    worker.terminate()
    ends_within(worker, 1)
    assert not living(worker)


def test_children_die_with_a_worker_that_is_killed_and_redelivery_waits_for_due_at(
    processes, ringer
):
    """Case 31: SIGKILL of the worker: no orphan goes on running a handler (the kernel ends them
    with their parent), and the hooks run again from due_at on, not after the visibility timeout."""
    limits = {"hook_timeout_seconds": 2, "hook_kill_grace_seconds": 1}
    worker = start(processes, **limits)
    connection = ringer.connection
    ringer.hooks("once_hangs", 8, payload=f'{{"flag": "{processes.directory}/go"}}')
    begun(ringer, 8)
    worker.kill()
    eventually(lambda: not living(worker))
    assert hook_states(connection) == {"running": 8}
    leases = {(h["due_at"] - h["started_at"]).total_seconds() for h in hooks(connection)}
    assert max(leases) < 2 + 1 + 0.8 + 1 + 0.1

    Path(processes.directory, "go").touch()
    start(processes, **limits)
    ringer.redeliver_until_completed(8)
    rows = hooks(connection)
    assert {(h["tries"], h["crashes"]) for h in rows} == {(2, 1)}
    assert len(effects(connection, "end")) == 8


def test_outcome_of_a_killed_try_never_overwrites_the_next_one(dsn, ringer):
    """A child's last statement may arrive after its hook was handed back and claimed again."""
    database = Database(dsn)
    hook_id = ringer.hook("ok")
    for number in (1, 2):
        assert ledger.claim_hook(
            database,
            hook_id=hook_id,
            try_number=number,
            worker="w",
            lease_seconds=60,
            max_tries={},
        )
        if number == 1:
            assert ledger.hand_back_hooks(database, worker="w") == [hook_id]
    for state in (HookState.COMPLETED, HookState.TIMED_OUT):
        late = ledger.record_outcome(database, hook_id=hook_id, try_number=1, state=state)
        assert late is None
    row = hooks(ringer.connection)[0]
    assert (row["state"], row["tries"], row["crashes"]) == ("running", 2, 0)
    database.close()


def living(worker: Process) -> list[int]:
    """Return the pids of the worker's children that still run; a zombie does not."""
    return [pid for pid, child in worker._seen.items() if runs(child)]


def runs(child: psutil.Process) -> bool:
    try:
        return child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
