"""The statements with which a person reads and mends the ledger, and those that keep it small.

One function each, named like its file in reaper/sql. What workers do with it is in `ledger`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reaper.selection import Selection
from reaper.store.connection import Database

DURATION_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0)
"""Upper bounds of the duration histogram, seconds: Prometheus' own up to the default hook timeout
(10) and hard limit (12), then minutes for deployments that allow more."""

MAINTENANCE_TIMEOUT_MS = 60_000
"""One batch of a roll-up or a pruning on a slow disk."""


@dataclass(frozen=True, slots=True)
class OwedHook:
    """One ledger row: a death and what became of its hook."""

    hook_id: int
    job_id: str
    job_type: str
    organization_id: str | None
    run_number: int
    attempt: int
    lease_owner: str | None
    reason: str
    failure_kind: str
    error_code: str | None
    error_message: str | None
    state: str
    tries: int
    failures: int
    crashes: int
    due_at: datetime
    claimed_by: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    created_at: datetime
    payload_json: str | None


@dataclass(frozen=True, slots=True)
class HookTotal:
    """Hooks that ever finished with one outcome, within one bucket of durations."""

    job_type: str
    state: str
    upper_seconds: float
    total: int
    seconds: float


def list_hooks(
    database: Database,
    selection: Selection,
    *,
    job_id: str | None = None,
    with_payload: bool = False,
) -> list[OwedHook]:
    """Return ledger rows, newest first."""
    parameters = _parameters(selection) | {
        "job_id": job_id,
        "with_payload": with_payload,
        "row_limit": selection.limit,
    }
    return [OwedHook(*row) for row in database.execute("list_hooks", parameters)]


def count_hooks(database: Database, selection: Selection) -> tuple[int, int]:
    """Return how many hooks are meant, running ones apart, and the highest id among them."""
    count, highest = database.execute("count_hooks", _parameters(selection))[0]
    return int(count), int(highest)


def retry_hooks(
    database: Database, selection: Selection, *, before_id: int, batch_size: int
) -> tuple[int, int | None]:
    """Owe one batch of hooks again, the newest below `before_id`.

    Returns:
        How many, and the lowest id that was picked; None at the end.
    """
    parameters = _parameters(selection) | {
        "before_id": before_id,
        "batch_size": batch_size,
        "bounds": list(DURATION_BOUNDS),
    }
    retried, lowest = database.execute("retry_hooks", parameters, repeatable=False)[0]
    return int(retried), lowest


def roll_up_hooks(database: Database, *, settle_seconds: float, batch_size: int) -> int:
    """Count finished hooks into the totals; return how many."""
    parameters = {
        "settle_seconds": settle_seconds,
        "batch_size": batch_size,
        "bounds": list(DURATION_BOUNDS),
    }
    rows = database.execute(
        "roll_up_hooks", parameters, statement_timeout_ms=MAINTENANCE_TIMEOUT_MS
    )
    return int(rows[0][0])


def read_hook_totals(database: Database) -> list[HookTotal]:
    """Return how many hooks ever finished, by type, outcome and duration."""
    rows = database.execute("read_hook_totals", {"bounds": list(DURATION_BOUNDS)})
    return [HookTotal(*row) for row in rows]


def count_prunable_hooks(database: Database, *, retention_seconds: float) -> int:
    """Return how many finished ledger rows are older than the retention."""
    parameters = {"retention_seconds": retention_seconds}
    return int(database.execute("count_prunable_hooks", parameters)[0][0])


def prune_hooks(database: Database, *, retention_seconds: float, batch_size: int) -> int:
    """Delete one batch of finished ledger rows older than the retention; return how many."""
    rows = database.execute(
        "prune_hooks",
        {"retention_seconds": retention_seconds, "batch_size": batch_size},
        statement_timeout_ms=MAINTENANCE_TIMEOUT_MS,
    )
    return int(rows[0][0])


def _parameters(selection: Selection) -> dict[str, Any]:
    return {"hook_ids": [int(i) for i in selection.ids] or None, **selection.parameters()}
