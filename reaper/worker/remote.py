"""Remote control: the commands that could lift the cap or the limits ask first.

They work at once, on one machine or all, also from Flower's buttons.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from celery.worker.control import Panel

from reaper.celery import HOOK_QUEUE, HOOK_TASK, settings
from reaper.worker.process import process


def _asking(name: str) -> Callable[[Callable[..., str | None]], None]:
    """Replace a remote command by one that asks the decorated function for a reason to refuse."""

    def replace(refuse: Callable[..., str | None]) -> None:
        command = Panel.data[name]

        @wraps(command)
        def asked(state: Any, *args: Any, **kwargs: Any) -> Any:
            reason = refuse(state, *args, **kwargs)
            return {"error": reason} if reason else command(state, *args, **kwargs)

        Panel.data[name] = asked

    return replace


@_asking("pool_grow")
def _refuse_grow(state: Any, n: int = 1, **_: Any) -> str | None:
    now = state.consumer.pool.num_processes
    if process.runs_hooks and now + int(n) > settings.hook_concurrency:
        return f"{now} + {n} is over the cap of {settings.hook_concurrency} hooks at once"
    return None


@_asking("autoscale")
def _refuse_autoscale(_state: Any, max: Any = None, min: Any = None) -> str | None:  # noqa: A002
    most = sorted((int(max or 0), int(min or 0)))[1]
    if process.runs_hooks and most > settings.hook_concurrency:
        return f"{max},{min} is over the cap of {settings.hook_concurrency} hooks at once"
    return None


@_asking("add_consumer")
def _refuse_consumer(_state: Any, queue: str, *_: Any, **__: Any) -> str | None:
    if queue == HOOK_QUEUE and not process.runs_hooks:
        return f"start a worker of its own: celery -A reaper worker -Q {HOOK_QUEUE}"
    return None


@_asking("time_limit")
def _refuse_limit(_state: Any, task_name: str | None = None, *_: Any, **__: Any) -> str | None:
    if task_name == HOOK_TASK:
        return "set REAPER_HOOK_TIMEOUT_SECONDS and restart: the ledger counts on the same limits"
    return None
