"""One hook: claim it, call the handler, record the outcome. Must not import Celery.

It is handed what belongs to the worker: the guard that arms the time limits around the handler, and
the exception type that means "soft limit reached".
"""

import time
from dataclasses import dataclass, field, replace

from reaper import telemetry
from reaper.calling import Call, Guard, Outcome, call
from reaper.config import Settings
from reaper.errors import StoreError
from reaper.jobs import HookState
from reaper.registry import JobRegistry, Registration
from reaper.store import Database, ledger, lending
from reaper.store.ledger import ClaimedHook, LedgerEvent, Throttled
from reaper.store.lending import Lent, TransactionBroken

RECORD_AGAIN_SECONDS = 0.2
"""Between two attempts to record an outcome while PostgreSQL is away."""

RECORD_MARGIN_SECONDS = 0.5
"""Recording ends this long before the hard limit: else the worker would record a timeout."""

_RUN_AGAIN = frozenset({"08", "40", "53", "57"})
"""SQLSTATE classes of a COMMIT that is nobody's fault: connection, serialization or deadlock,
resources, shutdown. Nothing was kept, so the hook may run again."""


@dataclass(slots=True)
class HookRunner:
    """Runs hooks in one process. `guard` arms and disarms the limits around the handler."""

    database: Database
    registry: JobRegistry
    settings: Settings
    worker: str
    guard: Guard
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
            telemetry.hook_throttled(hook_id)
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
            outcome = self._call(Call(claimed, registration))
        self._record(claimed, outcome, began)
        return outcome

    def _unhandled(self, job_type: str) -> Outcome:
        if job_type not in self._told:
            self._told.add(job_type)
            telemetry.hook_unhandled(job_type)
        return Outcome(HookState.UNHANDLED)

    def _call(self, owed: Call) -> Outcome:
        telemetry.hook_started(owed.claimed)
        return call(owed, self.guard, self.soft_limit)

    def _run_transactional(
        self, claimed: ClaimedHook, registration: Registration, began: float
    ) -> Outcome:
        """Call the handler inside a transaction that also records `completed`.

        Raises:
            StoreError: the transaction was lost through no fault of the handler's. Nothing of it
                was kept; the hook is released as lost and runs again.
        """
        left = self.settings.hook_timeout_seconds - (time.monotonic() - began)
        # Above the soft limit, so that a query it interrupts counts as timed out, not as failed.
        left += self.settings.hook_kill_grace_seconds / 2
        event = None
        try:
            with lending.lend(self.database, statement_timeout_ms=max(1, int(left * 1000))) as lent:
                outcome = self._call(Call(claimed, registration, (lent.connection,)))
                if outcome.state is HookState.COMPLETED:
                    event = _complete(lent, claimed)
                    lent.keep = True
        except TransactionBroken as error:
            outcome, event = Outcome(HookState.FAILED, "TransactionBroken", str(error)), None
        except StoreError as error:
            if error.sqlstate is None or error.sqlstate[:2] in _RUN_AGAIN:
                telemetry.outcome_unrecorded(claimed, error)
                raise
            outcome, event = Outcome(HookState.FAILED, "StoreError", str(error)), None
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
                    limit_seconds=max(deadline - time.monotonic(), RECORD_AGAIN_SECONDS),
                )
            except StoreError as error:
                if error.is_poison and outcome.error and not outcome.error.isascii():
                    # The database's encoding has not all of its characters.
                    plain = outcome.error.encode("ascii", "replace").decode("ascii")
                    outcome = replace(outcome, error=plain)
                    continue
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
                telemetry.hook_timed_out(claimed.hook.hook_id, event, timeout_seconds=limit)


def _complete(lent: Lent, claimed: ClaimedHook) -> LedgerEvent:
    """Record `completed` inside the handler's transaction, if it is still the same one."""
    lent.check()
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
