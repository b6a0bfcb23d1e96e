"""What the demo's database says of each job and its hook."""

from dataclasses import dataclass
from typing import Any

from reaper.jobs import HookState
from reaper.store import Database

_FINAL_STATUSES = frozenset({"SUCCEEDED", "DEAD_LETTERED", "CANCELED"})
_OPEN_HOOKS = frozenset({HookState.PENDING, HookState.RUNNING})


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job as it stands (fields: keep in the order of sql/demo_outcomes.sql)."""

    job_id: str
    job_type: str
    status: str
    attempt: int
    max_attempts: int
    worker_id: str | None
    is_expired: bool
    reaped: int
    retried: int
    has_dead_letter: bool
    hook_state: HookState | None
    hook_error: str | None

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it: no retry, no open or missing hook."""
        if self.status not in _FINAL_STATUSES or self.hook_state in _OPEN_HOOKS:
            return False
        return self.hook_state is not None or self.status != "DEAD_LETTERED"


def read_outcomes(database: Database) -> tuple[JobOutcome, ...]:
    """Return every job of the database, oldest first.

    Raises:
        StoreError: PostgreSQL is away.
    """
    return tuple(_outcome(row) for row in database.execute("demo_outcomes"))


def _outcome(row: tuple[Any, ...]) -> JobOutcome:
    *facts, state, error = row
    values = [*facts, HookState(state) if state else None, error]
    return JobOutcome(*values)
