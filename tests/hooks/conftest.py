"""Hook runners made by hand: no broker, no worker, and limits only where a test arms them."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from reaper.hooks import HookRunner
from reaper.registry import JobRegistry
from reaper.store import Database


class SoftLimitReachedError(Exception):
    """Stands for what the worker raises in a handler whose time is up."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `SoftLimitReachedError` in the main thread after `seconds`, as a worker would."""

    def reach(_signal: int, _frame: Any) -> None:
        raise SoftLimitReachedError

    before = signal.signal(signal.SIGUSR1, reach)
    main = threading.main_thread().ident
    timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def registry() -> JobRegistry:
    """A registry of this test's own."""
    return JobRegistry()


@pytest.fixture
def runner(dsn: str, settings: Any, registry: JobRegistry) -> Iterator[Callable[..., HookRunner]]:
    """Make runners, each a worker of its own with a connection of its own."""
    opened: list[Database] = []

    def make(
        worker: str = "w1",
        *,
        url: str = dsn,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
        **values: Any,
    ) -> HookRunner:
        opened.append(Database(url))
        return HookRunner(
            database=opened[-1],
            registry=registry,
            settings=settings(**values),
            worker=f"{worker}:{os.getpid()}",
            guard=guard,
            soft_limit=SoftLimitReachedError,
        )

    yield make
    for database in opened:
        database.close()
