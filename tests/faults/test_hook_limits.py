"""Time limits of hooks, on a real hook worker: whatever a handler does, it ends."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import psycopg2
import pytest

from reaper.embedded import EmbeddedValkey
from tests.harness import databases
from tests.harness.processes import Process, Processes
from tests.harness.rows import effects, fetch, hook_states, hooks, insert_hook
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer, overlap, start

LIMITS = {"hook_timeout_seconds": 1, "hook_kill_grace_seconds": 1}
"""Long enough to begin a handler on a busy machine."""

HARD_SECONDS = 2.0

BUSY_SECONDS = 4.0
"""What a busy machine may add to a limit."""

SOFT = ("sleeps", "regex", "asynchronous", "starts_process")
"""Handlers that the soft limit reaches."""

HARD = ("blocks", "deadlocks", "ignores_signals", "blocks_signals", "swallows_limit")
"""Handlers that only a kill ends."""

RAISES = {
    "exits": "SystemExit: 3",
    "interrupts": "KeyboardInterrupt",
    "generator_exits": "GeneratorExit",
    "base_exception": "Unruly: as planned",
}


@pytest.fixture
def ringer(connect: Callable[..., Any], dsn: str, broker_url: str) -> Iterator[Ringer]:
    ringer = Ringer(connect(), dsn, broker_url)
    yield ringer
    ringer.close()


class Scene:
    """One worker that has met every unruly handler; what became of each hook."""

    def __init__(self, worker: Process, ringer: Ringer) -> None:
        self.worker = worker
        self.ringer = ringer
        self.ids = {kind: ringer.hook(kind) for kind in (*SOFT, *HARD, *RAISES)}
        eventually(self._is_over, 60)

    def _is_over(self) -> bool:
        return not {"pending", "running"} & set(hook_states(self.ringer.connection))

    def hook(self, kind: str) -> dict[str, Any]:
        return self.ringer.row(self.ids[kind])

    def is_final(self, hook_id: int) -> bool:
        return self.ringer.row(hook_id)["state"] not in {"pending", "running"}

    def pid(self, kind: str) -> int:
        """The pool child that ran it."""
        what = next(
            e["what"] for e in effects(self.ringer.connection) if e["job_id"] == f"{kind}-1"
        )
        return int(what.split()[1])


@pytest.fixture(scope="module")
def scene(
    admin_dsn: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    with databases.fresh(admin_dsn, template) as dsn, EmbeddedValkey(persistence=False) as valkey:
        connection = psycopg2.connect(dsn)
        connection.autocommit = True
        started = Processes(tmp_path_factory.mktemp("scene"), dsn, valkey.url)
        ringer = Ringer(connection, dsn, valkey.url)
        try:
            worker = start(started, **LIMITS)
            yield Scene(worker, ringer)
        finally:
            started.end()
            ringer.close()
            connection.close()


@pytest.mark.parametrize("kind", SOFT)
def test_hook_is_ended_at_its_soft_limit_when_it_hangs(scene, kind):
    """Case 23: a hook that hangs ends at the time limit and is recorded `timed_out`."""
    hook = scene.hook(kind)
    assert (hook["state"], hook["error"]) == ("timed_out", "soft time limit reached")
    assert (hook["finished_at"] - hook["started_at"]).total_seconds() > 0.3  # from its delivery: 1


@pytest.mark.parametrize("kind", HARD)
def test_hook_is_killed_at_its_hard_limit_when_the_soft_limit_cannot_reach_it(scene, kind):
    """Case 24: a hook that blocks in C, hides from signals or swallows the limit is killed."""
    hook = scene.hook(kind)
    assert (hook["state"], hook["error"]) == ("timed_out", "hard time limit reached, killed")
    assert (hook["finished_at"] - hook["started_at"]).total_seconds() >= HARD_SECONDS - 0.2


@pytest.mark.parametrize("kind", [k for k in HARD if k != "blocks"])
def test_killed_hook_leaves_no_process_behind(scene, kind):
    """Case 24: killed means gone."""
    eventually(lambda: not is_alive(scene.pid(kind)))


@pytest.mark.parametrize("kind", [*SOFT, *HARD])
def test_timeout_is_recorded_once_though_celery_signals_it_twice(scene, kind):
    """Case 23: not zero times, not twice: neither in the ledger nor for the throttle."""
    hook = scene.hook(kind)
    assert (hook["tries"], hook["failures"], hook["crashes"]) == (1, 1, 0)
    text = "SELECT timeouts_in_row FROM reaper.hook_types WHERE job_type = %s"
    assert fetch(scene.ringer.connection, text, (kind,)) == [{"timeouts_in_row": 1}]
    logged = [x for x in scene.worker.log.splitlines() if "hook_timed_out" in x]
    assert len([x for x in logged if f"job_type={kind} " in x]) == 1


@pytest.mark.parametrize(("kind", "error"), RAISES.items())
def test_hook_is_recorded_as_failed_when_it_raises_what_is_no_exception(scene, kind, error):
    """Case 27: sys.exit, KeyboardInterrupt, GeneratorExit, BaseException: failed, worker alive."""
    hook = scene.hook(kind)
    assert (hook["state"], hook["error"], hook["crashes"]) == ("failed", error, 0)
    assert scene.worker.is_running


def test_process_started_by_a_handler_ends_with_it_when_it_is_waited_for(scene):
    """The soft limit reaches a handler inside subprocess.run, which then ends its process."""
    seconds = str(300 + scene.pid("starts_process"))
    assert not [p for p in psutil.process_iter(["cmdline"]) if seconds in (p.info["cmdline"] or [])]


def test_every_slot_is_free_again_after_timeouts_kills_and_exits(scene):
    """Cases 23 to 27: eight hooks run at once after all that, no more and no fewer."""
    connection = scene.ringer.connection

    def most_at_once() -> int:
        ids = scene.ringer.hooks("together", 8, payload='{"seconds": 0.8}')
        eventually(lambda: all(scene.is_final(hook_id) for hook_id in ids))
        return overlap([e for e in effects(connection) if e["job_id"].startswith("together")])

    eventually(lambda: most_at_once() == 8, 60)


def test_eight_hooks_that_only_a_kill_ends_are_all_recorded_as_timed_out(
    processes, ringer, connect
):
    """Case 24: Celery kills one after another; the kernel's timer does not turn the last ones into
    lost workers."""
    connection = connect()
    start(processes, **LIMITS)
    ringer.hooks("deadlocks", 3)
    ringer.hooks("ignores_signals", 3)
    ringer.hooks("swallows_limit", 2)
    eventually(lambda: hook_states(connection) == {"timed_out": 8}, 30)
    assert {h["tries"] for h in hooks(connection)} == {1}


def test_kernel_ends_a_hanging_hook_while_redis_is_frozen(processes, connect, dsn, own_valkey):
    """Celery's limits stand still with its Redis connection; the timer in the child does not."""
    connection = connect()
    ringer = Ringer(connection, dsn, own_valkey.url)
    start(processes.at(broker_url=own_valkey.url), hook_timeout_seconds=2)
    hook_ids = ringer.hooks("deadlocks", 2)
    pids = eventually(lambda: both_pids(connection))
    own_valkey.pause()

    eventually(lambda: not any(is_alive(pid) for pid in pids), 2 + 2 + 0.5 + BUSY_SECONDS)

    own_valkey.resume()
    eventually(lambda: {ringer.row(i)["state"] for i in hook_ids} == {"timed_out"}, 40)
    assert {ringer.row(i)["tries"] for i in hook_ids} == {1}
    ringer.hook("ok")
    eventually(lambda: effects(connection, "ok"), 40)
    ringer.close()


def both_pids(connection: Any) -> list[int] | None:
    found = [int(e["what"].split()[1]) for e in effects(connection)]
    return found if len(found) == 2 else None


def test_limits_hold_for_the_next_hook_when_a_handler_spoils_the_signals(
    processes, ringer, connect
):
    """One child runs both: what the first did to signals and timer does not reach the next."""
    connection = connect()
    start(processes, hook_concurrency=1, **LIMITS)
    ringer.hook("spoils_signals")
    ringer.hook("hangs")
    eventually(lambda: hook_states(connection) == {"completed": 1, "timed_out": 1})
    assert len({e["what"] for e in effects(connection)}) == 1
    assert hooks(connection)[1]["error"] == "soft time limit reached"


@pytest.mark.parametrize(
    "option", ["--max-tasks-per-child=1", "--max-memory-per-child=1"], ids=["tasks", "memory"]
)
def test_limits_hold_in_children_that_are_replaced_after_each_hook(
    processes, ringer, connect, option
):
    """Celery replaces children; the next one has handlers and limits like the first."""
    connection = connect()
    start(processes, option, hook_concurrency=1, **LIMITS)
    ringer.hook("says_pid")
    ringer.hook("hangs")
    ringer.hook("says_pid")
    eventually(lambda: hook_states(connection) == {"completed": 2, "timed_out": 1}, 40)
    assert len({e["what"] for e in effects(connection)}) == 3


def test_limits_come_from_the_settings_when_a_message_names_its_own(processes, ringer, connect):
    """A `timelimit` header in a message changes nothing."""
    connection = connect()
    start(processes, **LIMITS)
    hook_id = insert_hook(connection, job_type="hangs", due_seconds=60)
    ringer.celery.send_task(
        "reaper.terminal_hook",
        [hook_id, 1],
        queue="terminal-hooks",
        soft_time_limit=250,
        time_limit=260,
    )
    eventually(lambda: hook_states(connection) == {"timed_out": 1})
    assert hooks(connection)[0]["error"] == "soft time limit reached"


def is_alive(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
