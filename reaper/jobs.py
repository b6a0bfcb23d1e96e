"""The values that travel between the reap, the ledger and the handlers. Frozen, typed, no I/O.

Names and meanings follow the original reaper, so that handlers carry over.
"""

import enum
from dataclasses import dataclass, field

REAPER_WORKER_ID = "reaper"
"""What `JobContext.worker_id` says in a hook: the caller is the reaper, as in the original."""

LEASE_EXPIRED_CODE = "job.lease_expired"
LEASE_EXPIRED_MESSAGE = "Job lease expired before completion."
"""Both are data: keep in sync with sql/reap_batch.sql (tests/reap/test_model.py compares them)."""


class JobFailureKind(enum.StrEnum):
    """How an attempt ended, the values of the database type `job_failure_kind`."""

    RETRYABLE = "RETRYABLE"
    TERMINAL = "TERMINAL"
    PANICKED = "PANICKED"
    TIMEOUT = "TIMEOUT"
    LEASE_EXPIRED = "LEASE_EXPIRED"


class JobDeadLetterReason(enum.StrEnum):
    """Why a job is dead. The reap writes the first; `leases.fail` the other two."""

    LEASE_EXPIRED = "LEASE_EXPIRED"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    TERMINAL_FAILURE = "TERMINAL_FAILURE"


class HookState(enum.StrEnum):
    """Where a ledger row stands. `pending` and `running` move on; the others are final.

    pending -> running (claim) -> completed | failed | timed_out | unhandled;
    running -> pending when its worker was lost, when a drain hands it back, or for another try.
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNHANDLED = "unhandled"


@dataclass(frozen=True, slots=True)
class JobFailure:
    """What went wrong with the job's last attempt."""

    kind: JobFailureKind
    code: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class JobContext:
    """Which job a handler is called for.

    `worker_id` is the literal `reaper`; `lease_owner` is the worker that lost the lease.
    """

    job_id: str
    job_type: str
    run_number: int
    attempt: int
    organization_id: str | None
    worker_id: str
    lease_owner: str | None
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class JobDeadLetterInfo:
    """Why the job is dead. `max_attempts` is None for an expired lease, as in the original."""

    failure: JobFailure
    reason: JobDeadLetterReason
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class HookRef:
    """What a doorbell needs: the message is `[hook_id, try_number]`; the rest is for Flower."""

    hook_id: int
    try_number: int
    job_id: str
    job_type: str


@dataclass(frozen=True, slots=True)
class TerminalRecord:
    """One job that a reap dead-lettered, with the ledger row born in the same transaction."""

    hook_id: int
    job_id: str
    job_type: str
    organization_id: str | None
    run_number: int
    attempt: int

    @property
    def hook(self) -> HookRef:
        """The doorbell of this record's first try."""
        return HookRef(self.hook_id, 1, self.job_id, self.job_type)


@dataclass(frozen=True, slots=True)
class DeferredRow:
    """A poison row: its transition fails, so it was set aside. Never holds the row's contents."""

    job_id: str
    run_number: int
    attempt: int
    sqlstate: str
    constraint: str | None
    job_type: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one reap statement did.

    `picked` counts the rows it locked. `drained` says that it met fewer than it could take, so that
    nothing expired is left. Every lease that expires before `scanned_to` was looked at: a time as
    PostgreSQL writes it (it knows times that Python does not), None where that is unknown.
    `seconds` is how long the first lease took to be met: the cost of looking where nothing is.
    """

    picked: int
    counts: dict[tuple[str, str], int]
    terminal: tuple[TerminalRecord, ...]
    drained: bool
    scanned_to: str | None
    seconds: float = 0.0
    deferred: tuple[DeferredRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ReapResult:
    """What a tick did. `processed` = released + retried + dead-lettered.

    `skipped` counts expired leases left alone because they belong to a workflow step, `deferred`
    the poison rows set aside; neither is processed. `counts` is keyed (job_type, disposition).
    `ran` is False where another tick had begun too recently and this one did nothing.
    """

    ran: bool = True
    batches: int = 0
    released: int = 0
    retried: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    published: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    deferred: tuple[DeferredRow, ...] = ()
    terminal: tuple[TerminalRecord, ...] = ()

    @property
    def processed(self) -> int:
        """How many leases were taken back."""
        return self.released + self.retried + self.dead_lettered
