"""The time limits of one hook, in the pool child that runs it. Knows nothing of the ledger."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from celery.exceptions import SoftTimeLimitExceeded

from reaper.celery import settings

KERNEL_GRACE_SECONDS = 0.5
"""The kernel ends a handler this long after the hard limit, whatever Celery and Redis do: Celery's
own limits stand still while Redis is frozen."""


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Swallow a signal. A function, not SIG_IGN, which the handler's own children would inherit."""


def _raise_soft_limit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGUSR1, _nothing)  # once: what follows it must not be interrupted
    raise SoftTimeLimitExceeded


@contextmanager
def hook_signals() -> Iterator[None]:
    """Keep signals away from one hook, from before its claim until its outcome is recorded.

    SIGTERM does nothing, so that a TERM to the whole process group lets the hook finish and be
    recorded, and a kill at the hard limit is never taken for the handler's own exit. SIGUSR1,
    Celery's soft limit, does nothing outside `handler_limits`.
    """
    terminate = signal.signal(signal.SIGTERM, _nothing)
    signal.signal(signal.SIGUSR1, _nothing)
    try:
        yield
    finally:
        _disarm()
        signal.signal(signal.SIGTERM, terminate)


@contextmanager
def handler_limits() -> Iterator[None]:
    """Arm the limits around the handler.

    The soft limit's signal raises, once. The kernel's timer is the last resort. What a handler did
    before to these signals, their mask or the timer is undone first.
    """
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1, signal.SIGALRM})
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        seconds = settings.hook_hard_limit_seconds + KERNEL_GRACE_SECONDS
        signal.setitimer(signal.ITIMER_REAL, seconds)
        signal.signal(signal.SIGUSR1, _raise_soft_limit)
        yield
    finally:
        # The limit may be reached right here and interrupt this; then `hook_signals` disarms.
        _disarm()


def _disarm() -> None:
    signal.signal(signal.SIGUSR1, _nothing)
    signal.setitimer(signal.ITIMER_REAL, 0)
