"""The limits of one hook in its own process, at the moments that are hard to hit from outside."""

import os
import signal
from collections.abc import Iterator

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from reaper.worker import handler_limits, hook_signals

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def timer() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_soft_limit_raises_only_around_the_handler():
    """Never in the claim or the record."""
    with hook_signals():
        os.kill(os.getpid(), signal.SIGUSR1)
        with handler_limits(), pytest.raises(SoftTimeLimitExceeded):
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)


def test_soft_limit_raises_once():
    """What a handler does after it, and what follows the handler, is not interrupted again."""
    with hook_signals(), handler_limits():
        with pytest.raises(SoftTimeLimitExceeded):
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)


def test_term_does_nothing_from_claim_to_record_and_is_restored():
    """A TERM to the process group arrives while an outcome is being recorded."""
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with hook_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with handler_limits():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopped == [True]


def test_timer_runs_only_around_the_handler():
    """A timer left running would kill the child in the middle of somebody else's hook."""
    with hook_signals():
        with handler_limits():
            assert 12 < timer() <= 12.5  # the default hard limit and its grace
        assert timer() == 0


def test_timer_is_stopped_when_the_soft_limit_interrupts_the_disarming(monkeypatch):
    """The limit may be reached between the handler's last line and the disarming."""

    def interrupted() -> None:
        monkeypatch.undo()
        raise SoftTimeLimitExceeded

    def hook() -> None:
        with hook_signals():
            monkeypatch.setattr("reaper.worker.limits._disarm", interrupted)
            with handler_limits():
                pass

    with pytest.raises(SoftTimeLimitExceeded):
        hook()
    assert timer() == 0
