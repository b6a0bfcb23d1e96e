"""The lease holder's statements: one function each, named like its file in reaper/sql.

What comes in was checked by `reaper.leases`; a fenced function says whether the fence held.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reaper.errors import ReaperError
from reaper.store.connection import Database


@dataclass(frozen=True, slots=True)
class Lease:
    """One claimed job: the fence of every later write, and what its worker needs to know.

    Holds no connection and no time: it may be pickled and used by another process. Payload and
    checkpoint are kept as JSON text and stay out of its repr.

    Attributes:
        attempt: the attempt this claim began; 1 is the first of the run.
        lease_seconds: how long the claim, and each heartbeat, keeps the job, seconds.
        stage: where an earlier attempt left off; `queued` for a new job.
    """

    job_id: str
    job_type: str
    run_number: int
    attempt: int
    max_attempts: int
    worker_id: str
    organization_id: str | None
    stage: str
    payload_json: str = field(repr=False)
    checkpoint_json: str | None = field(repr=False)
    lease_seconds: float

    @property
    def payload(self) -> Any:
        """The payload, decoded anew at each access; integers arrive unrounded.

        Raises:
            ReaperError: Python cannot decode it, for example an integer over 4,300 digits.
        """
        return self._decoded("payload", self.payload_json)

    @property
    def checkpoint(self) -> Any:
        """The last checkpoint of this run, decoded anew at each access; None if there is none.

        Raises:
            ReaperError: Python cannot decode it.
        """
        return self._decoded("checkpoint", self.checkpoint_json or "null")

    def _decoded(self, what: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ReaperError(
                f"the {what} of job {self.job_id} cannot be decoded in Python "
                f"({type(error).__name__}): read its text in lease.{what}_json instead"
            ) from None


@dataclass(frozen=True, slots=True)
class NewJob:
    """What enqueue_job.sql writes; None takes the job type's value."""

    job_type: str
    payload: str = field(repr=False)
    organization_id: str | None
    priority: int | None
    max_attempts: int | None
    delay_seconds: float
    idempotency_key: str | None


def define_job_type(
    database: Database, *, job_type: str, max_attempts: int, timeout_seconds: int, priority: int
) -> None:
    """Define a job type, or change its defaults."""
    parameters = {
        "job_type": job_type,
        "max_attempts": max_attempts,
        "timeout_seconds": timeout_seconds,
        "priority": priority,
    }
    database.execute("define_job_type", parameters)


def enqueue_job(database: Database, job: NewJob) -> tuple[str | None, bool | None]:
    """Enqueue one job; return (job_id, is_enabled) as enqueue_job.sql explains them."""
    repeatable = job.idempotency_key is not None
    job_id, is_enabled = database.execute("enqueue_job", asdict(job), repeatable=repeatable)[0]
    return job_id, is_enabled


def claim_jobs(  # noqa: PLR0913 -- one per placeholder, keyword-only
    database: Database,
    *,
    worker_id: str,
    lease_seconds: float,
    batch_size: int,
    job_types: Sequence[str] | None,
    prestart: bool,
) -> list[Lease]:
    """Claim up to `batch_size` jobs, the most urgent first."""
    parameters = {
        "worker_id": worker_id,
        "lease_seconds": lease_seconds,
        "batch_size": batch_size,
        "job_types": None if job_types is None else list(job_types),
        "claim_origin": "WORKER_PRESTART" if prestart else "DIRECT",
    }
    rows = database.execute("claim_jobs", parameters)
    return [Lease(*(*row, lease_seconds)) for row in rows]


def heartbeat_lease(database: Database, lease: Lease, *, lease_seconds: float) -> bool:
    """Extend the lease; False if it is lost."""
    parameters = _fence(lease) | {"lease_seconds": lease_seconds}
    return bool(database.execute("heartbeat_lease", parameters))


def progress_job(  # noqa: PLR0913 -- one per placeholder, keyword-only
    database: Database,
    lease: Lease,
    *,
    stage: str | None,
    progress_done: int | None,
    progress_total: int | None,
    checkpoint: str | None,
) -> bool:
    """Write how far the job is; False if its lease is lost."""
    parameters = _fence(lease) | {
        "stage": stage,
        "progress_done": progress_done,
        "progress_total": progress_total,
        "checkpoint": checkpoint,
    }
    return bool(database.execute("progress_job", parameters))


def succeed_job(database: Database, lease: Lease) -> bool:
    """End the job well; False if its lease is lost."""
    return bool(database.execute("succeed_job", _fence(lease), repeatable=False))


def fail_job(  # noqa: PLR0913 -- one per placeholder, keyword-only
    database: Database,
    lease: Lease,
    *,
    failure_kind: str,
    error_code: str | None,
    error_message: str | None,
    retry_delay_ms: int,
) -> str | None:
    """End the attempt badly; return 'retried' or 'dead_lettered', None if the lease is lost."""
    parameters = _fence(lease) | {
        "failure_kind": failure_kind,
        "error_code": error_code,
        "error_message": error_message,
        "retry_delay_ms": retry_delay_ms,
    }
    rows = database.execute("fail_job", parameters, repeatable=False)
    return str(rows[0][0]) if rows else None


def _fence(lease: Lease) -> dict[str, Any]:
    return {
        "job_id": lease.job_id,
        "run_number": lease.run_number,
        "attempt": lease.attempt,
        "worker_id": lease.worker_id,
    }
