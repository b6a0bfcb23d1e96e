"""A running hook as the parent process sees it: its limits, and the record of its kill."""

import time
from signal import SIGALRM, SIGKILL
from typing import Any

from billiard.common import human_status
from celery.exceptions import WorkerLostError
from celery.worker.request import Request

from reaper import telemetry
from reaper.celery import settings
from reaper.errors import StoreError
from reaper.jobs import HookState
from reaper.store import ledger
from reaper.worker.process import parent_database

PAUSE_SECONDS = 10.0
"""After one failure the parent leaves PostgreSQL alone: each would hold up every hook's limits.
What it could not record is released as lost when it is due."""

KERNEL_KILL = human_status(-SIGALRM)
"""How the loss of a child reads when the timer of `reaper.worker.limits` ended it: Celery's own
kills go out one after another, and late where its loop is busy or Redis is frozen."""

_WRAPPER = "ExceptionWithTraceback()"
"""What Celery's event of a kill says instead of the reason; its traceback ends with that."""

_pause_until = 0.0


class HookRequest(Request):
    """Celery's view of a running hook in the parent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the limits from the settings: message headers and annotations cannot change them."""
        super().__init__(*args, **kwargs)
        self.time_limits = (settings.hook_hard_limit_seconds, settings.hook_timeout_seconds)
        self._is_told = False

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 -- Celery's name
        """Tell Flower of a kill once, with its reason: Celery does it twice, without."""
        if type == "task-failed":
            if self._is_told:
                return
            self._is_told = True
            if fields.get("exception") == _WRAPPER:
                line = str(fields.get("traceback")).rstrip().rpartition("\n")[2]
                fields["exception"] = line.removeprefix("billiard.exceptions.")
        super().send_event(type, **fields)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Record `timed_out` when the hard limit kills the hook."""
        super().on_timeout(soft, timeout)
        if not soft:
            record_kill(*self.args, about=str(self.argsrepr))

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Record `timed_out` also where the kernel's timer was faster than Celery's kill."""
        super().on_failure(exc_info, send_failed_event, return_ok)
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, WorkerLostError) and KERNEL_KILL in str(error):
            record_kill(*self.args, about=str(self.argsrepr))

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:  # noqa: ARG002
        """End the hook at once, for a cold shutdown: it is deaf to Celery's SIGTERM."""
        super().cancel(pool, SIGKILL, emit_retry)


def record_kill(hook_id: int, try_number: int, *, about: str = "") -> None:
    """Record a hook that is being killed at its hard limit. Safe to repeat; never raises.

    `about` names hook and job for the log, as the message does.
    """
    global _pause_until  # noqa: PLW0603 -- the parent's one memory of a failing database
    if time.monotonic() < _pause_until:
        telemetry.hard_limit_unrecorded(hook_id, about, "PostgreSQL failed a moment ago")
        return
    database = parent_database()
    try:
        event = ledger.record_outcome(
            database,
            hook_id=hook_id,
            try_number=try_number,
            state=HookState.TIMED_OUT,
            error="hard time limit reached, killed",
        )
    except StoreError as error:
        _pause_until = time.monotonic() + PAUSE_SECONDS
        telemetry.hard_limit_unrecorded(hook_id, about, str(error))
    else:
        if event is not None:
            limit = settings.hook_hard_limit_seconds
            telemetry.hook_timed_out(hook_id, event, timeout_seconds=limit)
    finally:
        database.close()
