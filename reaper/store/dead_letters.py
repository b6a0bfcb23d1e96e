"""The statements on dead letters: one function each, named like its file in reaper/sql."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reaper.selection import Selection
from reaper.store.connection import Database


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. `state` is dead, requeued or discarded; `hook_state` that of its hook."""

    job_id: str
    job_type: str
    organization_id: str | None
    run_number: int
    attempt: int
    error_code: str | None
    error_message: str | None
    failed_at: datetime
    state: str
    hook_state: str | None
    payload_json: str | None


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """What the queue says of a job now."""

    job_type: str
    organization_id: str | None
    status: str
    run_number: int
    attempt: int
    max_attempts: int
    stage: str
    worker_id: str | None
    lease_expires_at: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a job."""

    run_number: int
    attempt: int
    worker_id: str
    leased_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Death:
    """A place in the order of deaths, newest first: where a walk stands."""

    failed_at: datetime
    job_id: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch of a bulk action did: rows changed, and where it stopped (None: the end)."""

    changed: int
    last: Death | None


def list_dead_letters(
    database: Database, selection: Selection, *, with_payload: bool = False
) -> list[DeadLetter]:
    """Return dead letters, newest first."""
    parameters = _parameters(selection) | {
        "with_payload": with_payload,
        "row_limit": selection.limit,
    }
    return [DeadLetter(*row) for row in database.execute("list_dead_letters", parameters)]


def count_dead_letters(database: Database, selection: Selection) -> tuple[int, datetime]:
    """Return how many dead letters are meant, and the database's time."""
    count, now = database.execute("count_dead_letters", _parameters(selection))[0]
    return int(count), now


def requeue_dead_letters(
    database: Database,
    selection: Selection,
    *,
    before: Death,
    batch_size: int,
    keep_checkpoint: bool,
) -> Step:
    """Put one batch of dead-lettered jobs back, the newest deaths before `before`."""
    parameters = {"keep_checkpoint": keep_checkpoint, **_walk(selection, before, batch_size)}
    return _step(database.execute("requeue_dead_letters", parameters, repeatable=False)[0])


def discard_dead_letters(
    database: Database, selection: Selection, *, before: Death, batch_size: int
) -> Step:
    """Give one batch of dead-lettered jobs up, the newest deaths before `before`."""
    parameters = _walk(selection, before, batch_size)
    return _step(database.execute("discard_dead_letters", parameters, repeatable=False)[0])


def read_job(database: Database, job_id: str) -> QueuedJob | None:
    """Return what the queue says of a job, or None if it has no such row."""
    rows = database.execute("read_job", {"job_id": job_id})
    return QueuedJob(*rows[0]) if rows else None


def list_attempts(database: Database, job_id: str, *, row_limit: int) -> list[Attempt]:
    """Return a job's last attempts, newest first."""
    parameters = {"job_id": job_id, "row_limit": row_limit}
    return [Attempt(*row) for row in database.execute("list_attempts", parameters)]


def list_job_types(database: Database) -> list[str]:
    """Return the job types that are defined or have died."""
    return [row[0] for row in database.execute("list_job_types")]


def _parameters(selection: Selection) -> dict[str, Any]:
    return {"job_ids": list(selection.ids) or None, **selection.parameters()}


def _walk(selection: Selection, before: Death, batch_size: int) -> dict[str, Any]:
    parameters = _parameters(selection)
    del parameters["states"]
    return parameters | {
        "before_at": before.failed_at,
        "before_id": before.job_id,
        "batch_size": batch_size,
    }


def _step(row: tuple[Any, ...]) -> Step:
    changed, _picked, failed_at, job_id = row
    return Step(changed, Death(failed_at, job_id) if job_id else None)
