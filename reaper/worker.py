"""What a worker enforces: checks at start, eight hooks at most, time limits, the drain window.

Celery runs the pool and its limits; this module sets them where they cannot be talked round, records
what only the parent process sees (a killed hook), and makes the end of a shutdown certain.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any
from uuid import uuid4

from celery import signals
from celery.exceptions import SoftTimeLimitExceeded
from celery.worker.control import Panel, nok
from celery.worker.request import Request

from reaper import telemetry
from reaper.celery import (
    HOOK_QUEUE,
    REAP_QUEUE,
    app,
    celeryconfig_path,
    handler_modules,
    one_line_each,
    settings,
)
from reaper.errors import ConfigError, ReaperError, StoreError
from reaper.jobs import HookRef, HookState
from reaper.registry import load_handlers
from reaper.store import Database, ledger, schema

KERNEL_GRACE_SECONDS = 0.5
"""The kernel ends a handler this long after the hard limit, whatever Celery and Redis do."""

PARENT_CONNECT_SECONDS = 2
PARENT_STATEMENT_MS = 500
PARENT_PAUSE_SECONDS = 10.0
"""The parent's loop runs every hook's limits: it never waits long for PostgreSQL, and after one
failure leaves it alone. What it could not record is released as lost when it is due."""

LEAVE_SECONDS = 1.5
"""After the drain window: for Celery to put prefetched messages back before the process ends."""

_worker: Any = None
_identity = ""
_parent_pause_until = 0.0


def identity() -> str:
    """Return the name of this worker process in `claimed_by`; pool children share their parent's."""
    return _identity or f"{socket.gethostname()}:{os.getpid()}"


# -- at start ---------------------------------------------------------------------------------


@signals.worker_init.connect
def check_worker(sender: Any, **_: Any) -> None:
    """Check settings, database and handlers, and set the cap, before the pool is made.

    1. The database is reachable and has this version of the schema.
    2. The broker is reachable.
    3. A hook worker is prefork, at most eight wide, and its handlers import.

    Ends the process with one line where something is missing.
    """
    global _worker, _identity  # noqa: PLW0603 -- one worker per process, set before the fork
    _worker = sender
    _identity = f"{sender.hostname}:{os.getpid()}:{uuid4().hex[:8]}"
    queues = set(sender.app.amqp.queues.consume_from)
    if not queues & {REAP_QUEUE, HOOK_QUEUE}:
        return
    if celeryconfig_path:
        telemetry.config_found(celeryconfig_path)
    try:
        _check_database()
        _check_broker()
        if HOOK_QUEUE in queues:
            _enforce_cap(sender)
            types = load_handlers(handler_modules)
            telemetry.worker_configured(
                hooks_at_once=sender.concurrency,
                hook_timeout_seconds=settings.hook_timeout_seconds,
                drain_seconds=settings.drain_window_seconds,
                handlers=",".join(types) or "none",
            )
    except ReaperError as error:
        # Only SystemExit stops a worker from a signal handler: Celery logs anything else.
        sys.stderr.write(one_line_each(ConfigError(str(error))) + "\n")
        sys.stderr.flush()
        raise SystemExit(1) from None
    if queues >= {REAP_QUEUE, HOOK_QUEUE}:
        telemetry.all_in_one_worker()


def _check_database() -> None:
    database = Database(settings.require_database_url(), application_name="reaper")
    try:
        schema.check(database)
    except StoreError as error:
        if error.sqlstate is None:
            raise ConfigError(f"REAPER_DATABASE_URL: {error}") from None
        raise
    finally:
        database.close()


def _check_broker() -> None:
    connection = app.connection_for_write().clone(connect_timeout=PARENT_CONNECT_SECONDS)
    try:
        connection.ensure_connection(max_retries=1, timeout=PARENT_CONNECT_SECONDS)
        connection.channel()
    except Exception as error:
        raise ConfigError(
            f"REAPER_BROKER_URL={connection.as_uri()!r} cannot be reached: "
            f"{type(error).__name__}; check the URL and that the broker is up"
        ) from None
    finally:
        connection.release()


def _enforce_cap(worker: Any) -> None:
    """At most eight hooks at once, whatever -c, --autoscale and -P say."""
    if _pool_name(worker) != "prefork":
        raise ConfigError(
            f"-P {_pool_name(worker)} is not allowed on a worker that consumes {HOOK_QUEUE}: only "
            "prefork keeps the hooks' time limits; leave -P out"
        )
    cap = settings.hook_concurrency
    worker.concurrency = min(int(worker.concurrency or cap), cap)
    autoscale = worker.options.get("autoscale")
    if autoscale:
        most, least = _autoscale(autoscale)
        worker.options["autoscale"] = [min(most, cap), min(least, cap)]
    # A limit on children's tasks or memory is Celery's business; a second pool is not there.


def _autoscale(value: Any) -> tuple[int, int]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    most = int(parts[0])
    return most, int(parts[1]) if len(parts) > 1 else 0


def _pool_name(worker: Any) -> str:
    pool = worker.pool_cls
    name = pool if isinstance(pool, str) else f"{pool.__module__}.{pool.__name__}"
    return "prefork" if "prefork" in name or name == "processes" else name


# -- remote control ---------------------------------------------------------------------------


def _capped(name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a remote command by one that asks `allow` first."""

    def replace(refuse: Callable[..., str | None]) -> None:
        command = Panel.data[name]

        @wraps(command)
        def asked(state: Any, *args: Any, **kwargs: Any) -> Any:
            reason = refuse(state, *args, **kwargs)
            return nok(reason) if reason else command(state, *args, **kwargs)

        Panel.data[name] = asked

    return replace


def _runs_hooks(state: Any) -> bool:
    return HOOK_QUEUE in state.app.amqp.queues.consume_from


@_capped("pool_grow")
def _refuse_grow(state: Any, n: int = 1, **_: Any) -> str | None:
    now = state.consumer.pool.num_processes
    if _runs_hooks(state) and now + int(n) > settings.hook_concurrency:
        return f"{now} + {n} is over the cap of {settings.hook_concurrency} hooks at once"
    return None


@_capped("autoscale")
def _refuse_autoscale(state: Any, max: Any = None, min: Any = None) -> str | None:  # noqa: A002
    if _runs_hooks(state) and sorted((int(max or 0), int(min or 0)))[1] > settings.hook_concurrency:
        return f"{max},{min} is over the cap of {settings.hook_concurrency} hooks at once"
    return None


@_capped("add_consumer")
def _refuse_consumer(state: Any, queue: str, *_: Any, **__: Any) -> str | None:
    pool = type(state.consumer.pool).__module__
    too_wide = state.consumer.pool.num_processes > settings.hook_concurrency
    if queue == HOOK_QUEUE and not _runs_hooks(state) and (too_wide or "prefork" not in pool):
        return (
            f"{HOOK_QUEUE} needs a prefork worker of at most {settings.hook_concurrency} processes"
        )
    if queue == HOOK_QUEUE and not _runs_hooks(state):
        try:
            load_handlers(handler_modules)
        except ReaperError as error:
            return str(error)
        return f"start a worker of its own: celery -A reaper worker -Q {HOOK_QUEUE}"
    return None


# -- the limits of one hook, in the pool child ------------------------------------------------


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Swallow a signal. A function, not SIG_IGN, which the handler's own children would inherit."""


def _raise_soft_limit(_signal: int, _frame: FrameType | None) -> None:
    raise SoftTimeLimitExceeded


def quiet_signals() -> None:
    """Keep the soft limit's signal away from the claim and the record around the handler."""
    signal.signal(signal.SIGUSR1, _nothing)


@contextmanager
def handler_limits() -> Iterator[None]:
    """Arm the limits around the handler.

    The soft limit's signal raises. SIGTERM does nothing, so that a TERM to the whole process group
    lets the hook finish, and a kill at the hard limit is never taken for the handler's own exit.
    The kernel's timer is the last resort.
    """
    terminate = signal.signal(signal.SIGTERM, _nothing)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, settings.hook_hard_limit_seconds + KERNEL_GRACE_SECONDS)
    signal.signal(signal.SIGUSR1, _raise_soft_limit)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, _nothing)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, terminate)


# -- a hook that was killed, in the parent ----------------------------------------------------


class HookRequest(Request):
    """Celery's view of a running hook in the parent: records what the killed child cannot."""

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Record `timed_out` when the hard limit kills the hook."""
        super().on_timeout(soft, timeout)
        if not soft:
            hook_id, try_number = self.args
            _record_kill(int(hook_id), int(try_number))


def _parent_database() -> Database:
    """A database for one statement of the parent: opened, used and closed."""
    return Database(
        settings.require_database_url(),
        connect_timeout_seconds=PARENT_CONNECT_SECONDS,
        statement_timeout_ms=PARENT_STATEMENT_MS,
    )


def _record_kill(hook_id: int, try_number: int) -> None:
    global _parent_pause_until  # noqa: PLW0603 -- the parent's one memory of a failing database
    if time.monotonic() < _parent_pause_until:
        telemetry.hard_limit_unrecorded(hook_id, "PostgreSQL failed a moment ago")
        return
    database = _parent_database()
    try:
        event = ledger.record_outcome(
            database,
            hook_id=hook_id,
            try_number=try_number,
            state=HookState.TIMED_OUT,
            error="hard time limit reached, killed",
        )
    except StoreError as error:
        _parent_pause_until = time.monotonic() + PARENT_PAUSE_SECONDS
        telemetry.hard_limit_unrecorded(hook_id, str(error))
    else:
        if event is not None:
            hook = HookRef(hook_id, try_number, event.job_id, event.job_type)
            limit = settings.hook_hard_limit_seconds
            telemetry.hook_timed_out(hook, event, timeout_seconds=limit)
    finally:
        database.close()


# -- shutdown ---------------------------------------------------------------------------------


@signals.worker_shutting_down.connect
def begin_drain(how: str, **_: Any) -> None:
    """Start the watchdog that makes the end of a hook worker's shutdown certain."""
    if _worker is None or HOOK_QUEUE not in _worker.app.amqp.queues.consume_from:
        return
    window = settings.drain_window_seconds if how == "Warm" else 0.0
    threading.Thread(target=_end_drain, args=(window,), daemon=True, name="drain").start()


def _end_drain(window_seconds: float) -> None:
    """End what still runs after the drain window.

    1. Wait for the window; a worker that is done before has ended the process.
    2. Kill the pool's children, and wait until they are gone.
    3. Hand their hooks back to the ledger: pending, due at once.
    4. Ask Celery to leave, so that it puts back prefetched messages; then leave in any case.
    """
    time.sleep(window_seconds)
    children = [int(pid) for pid in _worker.pool.info.get("processes", ())]
    for pid in children:
        _kill(pid)
    _wait_gone(children)
    handed_back = _hand_back()
    telemetry.drain_cut_off(handed_back, window_seconds=window_seconds)
    os.kill(os.getpid(), signal.SIGQUIT)
    time.sleep(LEAVE_SECONDS)
    logging.shutdown()
    os._exit(0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_gone(pids: list[int], seconds: float = 1.0) -> None:
    """Wait until killed children are gone or zombies: then none can still write an outcome."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _hand_back() -> int:
    database = _parent_database()
    try:
        return len(ledger.hand_back_hooks(database, worker=identity()))
    except StoreError:
        return 0  # released as lost when they are due
    finally:
        database.close()
