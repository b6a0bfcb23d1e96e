"""One hook: claim it, call the handler, record the outcome. Must not import Celery.

It is handed what belongs to the worker: the guard that arms the time limits around the handler, and
the exception type that means "soft limit reached".
"""

import asyncio
import inspect
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from reaper import telemetry
from reaper.config import Settings
from reaper.errors import StoreError
from reaper.jobs import HookRef, HookState
from reaper.registry import JobRegistry, Registration
from reaper.store import Database, ledger
from reaper.store.ledger import ClaimedHook, LedgerEvent, Throttled

ERROR_LIMIT = 2_000
"""Characters of a handler's error kept in the ledger: a page on the screen."""

RECORD_AGAIN_SECONDS = 0.2
"""Between two attempts to record an outcome while PostgreSQL is away."""

RECORD_MARGIN_SECONDS = 0.5
"""Recording ends this long before the hard limit: else the worker would record a timeout instead."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended. `state` None: nothing was run (a duplicate, a throttled type).

    `error_type` is the name of the exception type only: its text may hold a payload.
    """

    state: HookState | None
    error_type: str | None = None
    error: str | None = None


class TransactionBroken(Exception):  # noqa: N818 -- becomes the hook's error, never leaves here
    """A transactional handler ended its transaction by itself, or its hook was claimed again."""


@dataclass(slots=True)
class HookRunner:
    """Runs hooks in one process. `guard` arms and disarms the limits around the handler."""

    database: Database
    registry: JobRegistry
    settings: Settings
    worker: str
    guard: Callable[[], AbstractContextManager[None]]
    soft_limit: type[BaseException]
    _told: set[str] = field(default_factory=set)

    def run(self, hook_id: int, try_number: int) -> Outcome:
        """Run one try of a hook and return how it ended.

        1. Claim it; a duplicate or a throttled type stops here.
        2. Find the handler; none: `unhandled`, final.
        3. Decode the payload and call the handler within its time limits.
        4. Record the outcome, as long as the hard limit allows.

        Safe to call twice with one message: the second finds nothing to claim.

        Raises:
            StoreError: PostgreSQL is away. Before the claim nothing happened; after it the hook is
                released as lost when it is due.
        """
        began = time.monotonic()
        claimed = ledger.claim_hook(
            self.database,
            hook_id=hook_id,
            try_number=try_number,
            worker=self.worker,
            lease_seconds=self.settings.hook_lease_seconds,
            max_tries=self.registry.max_tries(),
        )
        if claimed is None:
            return Outcome(None)
        if isinstance(claimed, Throttled):
            telemetry.hook_throttled(HookRef(hook_id, try_number, "", ""))
            return Outcome(None)
        if time.monotonic() - began > self.settings.hook_timeout_seconds:
            # PostgreSQL took the handler's whole time: somebody else shall run it.
            ledger.hand_back_hooks(self.database, worker=self.worker, hook_id=hook_id)
            return Outcome(None)
        registration = self.registry.get(claimed.context.job_type)
        if registration is None:
            outcome = self._unhandled(claimed.context.job_type)
        elif registration.transactional:
            return self._run_transactional(claimed, registration, began)
        else:
            outcome = self._call(claimed, registration)
        self._record(claimed, outcome, began)
        return outcome

    def _unhandled(self, job_type: str) -> Outcome:
        if job_type not in self._told:
            self._told.add(job_type)
            telemetry.hook_unhandled(job_type)
        return Outcome(HookState.UNHANDLED)

    def _call(self, claimed: ClaimedHook, registration: Registration, *extra: Any) -> Outcome:
        """Call the handler; whatever it does becomes a value."""
        telemetry.hook_started(claimed)
        try:
            payload = _decode(claimed.payload_json)
        except (ValueError, RecursionError) as error:
            text = f"the payload cannot be decoded in Python: {error}"
            return Outcome(HookState.FAILED, "PayloadUndecodable", clean(text))
        try:
            with self.guard():
                _invoke(registration, claimed, payload, extra)
        except self.soft_limit:
            return Outcome(HookState.TIMED_OUT, "SoftTimeLimitExceeded", "soft time limit reached")
        # The one broad except: a handler may raise anything, sys.exit() and KeyboardInterrupt
        # included, and none of it may touch another hook or the worker.
        except BaseException as error:  # noqa: BLE001
            return Outcome(HookState.FAILED, type(error).__name__, describe(error))
        return Outcome(HookState.COMPLETED)

    def _run_transactional(
        self, claimed: ClaimedHook, registration: Registration, began: float
    ) -> Outcome:
        """Call the handler inside a transaction that also records `completed`."""
        left = self.settings.hook_timeout_seconds - (time.monotonic() - began)
        # Above the soft limit, so that a query it interrupts counts as timed out, not as failed.
        left += self.settings.hook_kill_grace_seconds / 2
        outcome = Outcome(None)
        event = None
        try:
            with self.database.lend(statement_timeout_ms=max(1, int(left * 1000))) as lent:
                outcome = self._call(claimed, registration, lent.connection)
                if outcome.state is HookState.COMPLETED:
                    event = _complete(lent, claimed)
                    lent.keep = True
        except TransactionBroken as error:
            outcome = Outcome(HookState.FAILED, "TransactionBroken", str(error))
        except StoreError as error:
            outcome = Outcome(HookState.FAILED, "StoreError", str(error))
        if event is None:
            self._record(claimed, outcome, began)
        else:
            self._log(claimed, outcome, event, began)
        return outcome

    def _record(self, claimed: ClaimedHook, outcome: Outcome, began: float) -> None:
        """Record the outcome; while PostgreSQL is away try again until just before the kill."""
        assert outcome.state is not None  # noqa: S101 -- for the type checker
        deadline = began + self.settings.hook_hard_limit_seconds - RECORD_MARGIN_SECONDS
        while True:
            try:
                event = ledger.record_outcome(
                    self.database,
                    hook_id=claimed.hook.hook_id,
                    try_number=claimed.hook.try_number,
                    state=outcome.state,
                    error=outcome.error,
                )
            except StoreError as error:
                if time.monotonic() + RECORD_AGAIN_SECONDS > deadline:
                    telemetry.outcome_unrecorded(claimed, error)
                    raise
                time.sleep(RECORD_AGAIN_SECONDS)
            else:
                return self._log(claimed, outcome, event, began)

    def _log(
        self, claimed: ClaimedHook, outcome: Outcome, event: LedgerEvent | None, began: float
    ) -> None:
        match outcome.state:
            case HookState.COMPLETED:
                telemetry.hook_completed(claimed, seconds=time.monotonic() - began)
            case HookState.FAILED:
                again = event is not None and event.state is HookState.PENDING
                error_type = outcome.error_type or "unknown"
                telemetry.hook_failed(claimed, error_type=error_type, again=again)
            case HookState.TIMED_OUT:
                limit = self.settings.hook_timeout_seconds
                telemetry.hook_timed_out(claimed.hook, event, timeout_seconds=limit)


def clean(text: str) -> str:
    """Return `text` as PostgreSQL can keep it: no NUL, no lone surrogates, bounded, printable."""
    whole = text[:ERROR_LIMIT].encode("utf-8", "replace").decode("utf-8")
    kept = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in whole
    )
    return kept + ("..." if len(text) > ERROR_LIMIT else "")


def describe(error: BaseException) -> str:
    """Return type and text of a handler's exception, cleaned; its `__str__` may itself raise."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- user code again
        text = "(its text cannot be read)"
    return clean(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _decode(payload_json: str) -> Any:
    return json.loads(payload_json)


def _invoke(
    registration: Registration, claimed: ClaimedHook, payload: Any, extra: tuple[Any, ...]
) -> None:
    result = registration.handler(claimed.context, payload, claimed.dead_letter, *extra)
    if inspect.isawaitable(result):
        asyncio.run(_finish(result))


async def _finish(awaitable: Any) -> None:
    await awaitable


def _complete(lent: Any, claimed: ClaimedHook) -> LedgerEvent:
    """Record `completed` inside the handler's transaction, if it is still the same one."""
    if not lent.is_unbroken():
        raise TransactionBroken(
            "the handler committed or rolled back the connection it was lent; with "
            "transactional=True reaper does that: take the commit or rollback out of the handler"
        )
    event = ledger.record_outcome(
        lent.transaction,
        hook_id=claimed.hook.hook_id,
        try_number=claimed.hook.try_number,
        state=HookState.COMPLETED,
    )
    if event is None:
        raise TransactionBroken(
            "the hook was claimed again while the handler ran, its effects were rolled back; give "
            "handlers a shorter time than REAPER_HOOK_TIMEOUT_SECONDS"
        )
    return event
