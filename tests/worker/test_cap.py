"""Never more than eight hooks at once in one worker, whatever is asked of it (case 29)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.harness.processes import Processes
from tests.harness.rows import effects, hook_states
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer, overlap, start

HOOKS = 24


@pytest.fixture
def ringer(connect: Callable[..., Any], dsn: str, broker_url: str) -> Iterator[Ringer]:
    ringer = Ringer(connect(), dsn, broker_url)
    yield ringer
    ringer.close()


def most_at_once(ringer: Ringer) -> int:
    """Run many short hooks; return how many ran at once at most."""
    before = hook_states(ringer.connection)["completed"]
    ringer.hooks("together", HOOKS, payload='{"seconds": 0.5}')
    done = before + HOOKS
    eventually(lambda: hook_states(ringer.connection)["completed"] == done, 60)
    return overlap(effects(ringer.connection))


def configure(processes: Processes, text: str) -> None:
    Path(processes.directory, "celeryconfig.py").write_text(text)


@pytest.mark.parametrize("options", [("-c", "32"), ("--autoscale=32,9",), ("-c", "auto")])
def test_worker_runs_eight_hooks_at_most_whatever_its_options_ask_for(processes, ringer, options):
    """Case 29: -c, --autoscale, -c auto."""
    start(processes, *options)
    assert 1 < most_at_once(ringer) <= 8


def test_worker_runs_eight_hooks_at_most_when_environment_and_celeryconfig_ask_for_more(
    processes, ringer
):
    """Case 29: CELERY_WORKER_CONCURRENCY and worker_concurrency."""
    configure(processes, "worker_concurrency = 64\n")
    worker = start(processes, CELERY_WORKER_CONCURRENCY=32)
    worker.wait_for("hooks_at_once=8")
    assert len(worker.children()) == 8
    assert most_at_once(ringer) <= 8


def test_worker_runs_fewer_hooks_when_the_settings_say_so(processes, ringer):
    """The cap is REAPER_HOOK_CONCURRENCY, eight at most; options do not raise it."""
    start(processes, "-c", "8", hook_concurrency=2)
    assert most_at_once(ringer) <= 2


@pytest.mark.parametrize("pool", ["threads", "solo"])
@pytest.mark.parametrize("way", ["option", "celeryconfig"])
def test_hook_worker_refuses_a_pool_that_keeps_no_time_limits(processes, pool, way):
    """Case 29: no start, and a sentence that says why."""
    if way == "celeryconfig":
        configure(processes, f"worker_pool = {pool!r}\n")
    options = ["-P", pool] if way == "option" else []
    worker = processes.hook_worker(*options)
    assert worker.wait() in {1, 2}  # refused by the worker, or by the settings even before it
    lines = [line for line in worker.log.splitlines() if line.startswith("reaper: ")]
    assert len(lines) == 1
    assert "prefork" in lines[0]
    assert "keeps the hooks' time limits" in lines[0]


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_hook_worker_does_not_start_on_green_threads(processes, pool):
    """Case 29: where the library is missing Celery itself refuses, else reaper does."""
    worker = processes.hook_worker("-P", pool)
    assert worker.wait() != 0


def test_hook_worker_refuses_children_that_are_not_forked(processes):
    """Spawned children would know no handlers: every notice would end as `unhandled`."""
    configure(processes, "worker_pool_start_method = 'spawn'\n")
    worker = processes.hook_worker()
    assert worker.wait() == 1
    assert "reaper: worker_pool_start_method='spawn' is not allowed" in worker.log


def test_reap_worker_may_use_any_pool(processes):
    """The cap and the pool are the hooks' business."""
    processes.reap_worker("-P", "solo", "-l", "INFO").ready()


def reply(ringer: Ringer, command: str, **arguments: Any) -> Any:
    """Send a remote command to the only worker, once it listens; return its answer."""
    eventually(lambda: ringer.celery.control.ping(timeout=5, limit=1), 60)
    answers = ringer.celery.control.broadcast(command, arguments, reply=True, timeout=30, limit=1)
    return next(iter(answers[0].values()))


def test_remote_commands_cannot_lift_cap_or_limits(processes, ringer):
    """Case 29: pool_grow, also after the queue was paused, and time_limit."""
    worker = start(processes, hook_concurrency=3)
    over = {"error": "3 + 1 is over the cap of 3 hooks at once"}
    assert reply(ringer, "pool_grow", n=1) == over
    assert "ok" in reply(ringer, "pool_shrink", n=1)
    assert "ok" in reply(ringer, "pool_grow", n=1)
    assert reply(ringer, "pool_grow", n=1) == over
    assert "ok" in reply(ringer, "cancel_consumer", queue="terminal-hooks")
    assert reply(ringer, "pool_grow", n=1) == over
    assert "ok" in reply(ringer, "add_consumer", queue="terminal-hooks")
    limit = reply(ringer, "time_limit", task_name="reaper.terminal_hook", hard=900, soft=900)
    assert "REAPER_HOOK_TIMEOUT_SECONDS" in limit["error"]
    assert most_at_once(ringer) <= 3
    assert worker.is_running


def test_remote_autoscale_cannot_lift_the_cap(processes, ringer):
    """Case 29: neither bound may pass it."""
    start(processes, "--autoscale=4,1")
    for bounds in ({"max": 9, "min": 1}, {"max": 2, "min": 9}):
        assert "over the cap of 8" in reply(ringer, "autoscale", **bounds)["error"]
    assert "ok" in reply(ringer, "autoscale", max=8, min=2)
    assert most_at_once(ringer) <= 8


def test_remote_add_consumer_makes_no_hook_worker_of_a_reap_worker(processes, ringer):
    """Case 29: it has no handlers and was checked for none."""
    processes.reap_worker("-l", "INFO").ready()
    answer = reply(ringer, "add_consumer", queue="terminal-hooks")
    assert "start a worker of its own" in answer["error"]


def test_hook_sent_to_a_reap_worker_stays_owed(processes, ringer, broker_url):
    """A message on the wrong queue is no reason to call a notice unhandled."""
    processes.reap_worker("-l", "INFO").ready()
    hook_id = ringer.hook("ok")
    ringer.celery.send_task("reaper.terminal_hook", [hook_id, 1], queue="reaper")
    with redis.Redis.from_url(broker_url) as client:
        eventually(lambda: not client.llen("reaper:reaper") and not client.hlen("reaper:unacked"))
    assert ringer.row(hook_id)["state"] == "pending"
