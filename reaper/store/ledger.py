"""The statements of the hook ledger: one function each, named like its file in reaper/sql."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reaper.jobs import (
    REAPER_WORKER_ID,
    HookRef,
    HookState,
    JobContext,
    JobDeadLetterInfo,
    JobDeadLetterReason,
    JobFailure,
    JobFailureKind,
)
from reaper.store.connection import Database, Row, Transaction
from reaper.store.reaping import UNHEARD_SECONDS

THROTTLE_AFTER = 3
"""Timeouts in a row from which a job type is throttled: two can be chance, and three cost eight
slots at most two rounds."""

PROBE_SECONDS = 30.0
"""How long a throttled type waits for its next single try: three default hook timeouts, so a
hanging type holds one slot for a third of the time at most."""

BACKOFF_SECONDS = 5.0
"""Before a hook's second try; doubles with each failure."""

BACKOFF_MAX_SECONDS = 3600.0
"""The longest wait between two tries of one hook."""

HOOK_TIMEOUT_MS = 5_000
"""Statements on one ledger row by its key: anything slower is an outage."""


Send = Callable[[str, Mapping[str, Any]], list[Row]]
"""Sends a statement by name with its parameters."""


@dataclass(frozen=True, slots=True)
class ClaimedHook:
    """One hook this process now owes a call. `payload_json` is the snapshot, not yet decoded."""

    hook: HookRef
    context: JobContext
    dead_letter: JobDeadLetterInfo
    payload_json: str


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """What happened to one ledger row, for the log."""

    hook_id: int
    state: HookState
    job_id: str
    job_type: str
    run_number: int
    attempt: int
    crashes: int = 0


class Throttled:
    """The claim met a throttled job type; the hook waits in the ledger."""


def claim_hook(  # noqa: PLR0913 -- keywords: which try, and what its row is told
    database: Database,
    *,
    hook_id: int,
    try_number: int,
    worker: str,
    lease_seconds: float,
    max_tries: Mapping[str, int],
) -> ClaimedHook | Throttled | None:
    """Claim one try of a hook.

    Returns:
        None for a duplicate message, `Throttled` where its type has to wait.
    """
    message = {"hook_id": hook_id, "try_number": try_number, "throttle_after": THROTTLE_AFTER}
    rows = database.execute(
        "claim_hook",
        message
        | {
            "worker": worker,
            "lease_seconds": lease_seconds,
            "max_tries": json.dumps(dict(max_tries)),
        },
        statement_timeout_ms=HOOK_TIMEOUT_MS,
    )
    if rows:
        return _claimed(hook_id, try_number, rows[0])
    # A duplicate, or a throttled type: both rare, so that nearly always one statement is enough.
    waits = database.execute("put_off_hook", message, statement_timeout_ms=HOOK_TIMEOUT_MS)
    return Throttled() if waits else None


def record_outcome(  # noqa: PLR0913 -- keywords: which try, and what its row is told
    session: Database | Transaction,
    *,
    hook_id: int,
    try_number: int,
    state: HookState,
    error: str | None = None,
    limit_seconds: float | None = None,
) -> LedgerEvent | None:
    """Record how a try ended; None if it was recorded before or claimed again since.

    Args:
        session: where; a `Transaction` commits it together with what else was done in it.
        hook_id: which hook.
        try_number: which try of it.
        state: a final state; the hook is pending again where it has tries left.
        error: the handler's error, cleaned.
        limit_seconds: how long PostgreSQL may take; None leaves that to the session. Not in a
            `Transaction`, which has its own limits.
    """
    which = {"hook_id": hook_id, "try_number": try_number}
    send = _limited(session, limit_seconds)
    is_usual = state is HookState.COMPLETED and error is None
    rows = send("complete_hook", which) if is_usual else []
    if not rows:  # another outcome, a duplicate, or a type whose hooks timed out lately
        rest = {
            "state": state.value,
            "error": error,
            "backoff_seconds": BACKOFF_SECONDS,
            "backoff_max_seconds": BACKOFF_MAX_SECONDS,
            "probe_seconds": PROBE_SECONDS,
        }
        rows = send("record_outcome", which | rest)
    if not rows:
        return None
    new_state, *job = rows[0]
    return LedgerEvent(hook_id, HookState(new_state), *job)


def _limited(session: Database | Transaction, limit_seconds: float | None) -> Send:
    """Return how to send statements that together may take `limit_seconds`."""
    if not isinstance(session, Database) or limit_seconds is None:
        return session.execute
    deadline = time.monotonic() + limit_seconds

    def send(name: str, parameters: Mapping[str, Any]) -> list[Row]:
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        return session.execute(name, parameters, statement_timeout_ms=left_ms)

    return send


def release_lost_hooks(
    database: Database, *, max_crashes: int, batch_size: int
) -> list[LedgerEvent]:
    """Take running hooks past their time away from their lost workers."""
    rows = database.execute(
        "release_lost_hooks", {"max_crashes": max_crashes, "batch_size": batch_size}
    )
    return [LedgerEvent(row[1], HookState(row[0]), *row[2:]) for row in rows]


def hand_back_hooks(database: Database, *, worker: str, hook_id: int | None = None) -> list[int]:
    """Make the running hooks of `worker` pending again, due at once; return their ids."""
    rows = database.execute("hand_back_hooks", {"worker": worker, "hook_id": hook_id})
    return [row[0] for row in rows]


def count_due_hooks(database: Database, *, count_limit: int) -> int:
    """Count the owed hooks whose doorbell went unanswered, up to `count_limit`."""
    parameters = {"throttle_after": THROTTLE_AFTER, "count_limit": count_limit}
    return int(database.execute("count_due_hooks", parameters)[0][0])


def take_due_hooks(database: Database, *, batch_size: int) -> list[HookRef]:
    """Take up to `batch_size` of them, oldest first, to ring again."""
    parameters = {
        "batch_size": batch_size,
        "unheard_seconds": UNHEARD_SECONDS,
        "throttle_after": THROTTLE_AFTER,
    }
    return [HookRef(*row) for row in database.execute("take_due_hooks", parameters)]


def take_probes(database: Database) -> list[HookRef]:
    """Take one hook of each throttled type whose next single try is due."""
    parameters = {
        "throttle_after": THROTTLE_AFTER,
        "probe_seconds": PROBE_SECONDS,
        "unheard_seconds": UNHEARD_SECONDS,
    }
    return [HookRef(*row) for row in database.execute("take_probes", parameters)]


def mark_unsent(database: Database, hooks: Sequence[HookRef]) -> None:
    """Make hooks whose message was not sent, or perhaps not, due at once."""
    database.execute("mark_unsent", {"hook_ids": [hook.hook_id for hook in hooks]})


def _claimed(hook_id: int, try_number: int, row: Row) -> ClaimedHook:
    job_id, job_type, run_number, attempt, organization_id, max_attempts, owner = row[:7]
    payload_json, reason, kind, code, message = row[7:]
    return ClaimedHook(
        hook=HookRef(hook_id, try_number, job_id, job_type),
        context=JobContext(
            job_id=job_id,
            job_type=job_type,
            run_number=run_number,
            attempt=attempt,
            organization_id=organization_id,
            worker_id=REAPER_WORKER_ID,
            lease_owner=owner,
            max_attempts=max_attempts,
        ),
        dead_letter=JobDeadLetterInfo(
            failure=JobFailure(JobFailureKind(kind), code, message),
            reason=JobDeadLetterReason(reason),
            max_attempts=None,
        ),
        payload_json=payload_json,
    )
