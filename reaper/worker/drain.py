"""The end of a hook worker's shutdown: certain, within the drain window, with nothing lost.

Celery's warm shutdown waits for running hooks as long as they take, and for ever where Redis is
frozen. A watchdog thread bounds it.
"""

import logging
import os
import signal
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from celery import bootsteps, signals

from reaper import telemetry
from reaper.celery import app, settings
from reaper.errors import StoreError
from reaper.store import ledger
from reaper.worker.process import parent_database, process

LEAVE_SECONDS = 1.5
"""After the drain window: for Celery to put prefetched messages back before the process ends."""

GONE_SECONDS = 1.0
"""How long killed children may take to be gone; a busy machine needs a part of it."""

_FINISHED = "finished"
_NOW = "now"

_watchdog: threading.Thread | None = None
_told: SimpleQueue[str] = SimpleQueue()  # its put() may interrupt itself: safe in signal handlers


@signals.worker_shutting_down.connect
def on_shutdown_signal(how: str, **_: Any) -> None:
    """TERM or INT: give running hooks the window. QUIT: give them nothing."""
    begin_drain()
    if how != "Warm":
        _told.put(_NOW)


@signals.worker_shutdown.connect
def on_shutdown_finished(**_: Any) -> None:
    """Celery is done by itself: the watchdog lets the process end."""
    _told.put(_FINISHED)


class Drain(bootsteps.StartStopStep):
    """Starts the watchdog where no signal did: a remote `shutdown`, a HUP, an error in Celery."""

    def close(self, _worker: Any) -> None:
        """Be told that the worker stops, before its parts are."""
        begin_drain()


app.steps["worker"].add(Drain)


def begin_drain() -> None:
    """Start the watchdog, once.

    Not a daemon: where Celery leaves while the watchdog is cutting off, the process waits for it to
    hand the hooks back.
    """
    global _watchdog  # noqa: PLW0603 -- a process shuts down once
    if process.runs_hooks and _watchdog is None:
        _watchdog = threading.Thread(target=_watch, name="drain")
        _watchdog.start()


def _watch() -> None:
    window = settings.drain_window_seconds
    try:
        if _told.get(timeout=window) == _FINISHED:
            return
        window = 0.0
    except Empty:
        pass
    try:
        _cut_off(window)
    finally:
        logging.shutdown()
        os._exit(0)


def _cut_off(window_seconds: float) -> None:
    """End what still runs.

    1. Kill the pool's children, and wait until they are gone.
    2. Hand their hooks back to the ledger: pending, due at once.
    3. Ask Celery to leave, so that it puts back prefetched messages; wait a moment for it.
    """
    children = process.pool_pids()
    for pid in children:
        _kill(pid)
    _wait_gone(children)
    hooks, error = _hand_back()
    telemetry.drain_cut_off(hooks, window_seconds=window_seconds, error=error)
    if threading.main_thread().is_alive():
        os.kill(os.getpid(), signal.SIGQUIT)
        threading.main_thread().join(LEAVE_SECONDS)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_gone(pids: list[int]) -> None:
    """Wait until killed children are gone or zombies: then none can still write an outcome."""
    deadline = time.monotonic() + GONE_SECONDS
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def _hand_back() -> tuple[int | None, str | None]:
    database = parent_database()
    try:
        return len(ledger.hand_back_hooks(database, worker=process.identity())), None
    except StoreError as error:
        return None, str(error)  # they are released as lost when they are due
    finally:
        database.close()
