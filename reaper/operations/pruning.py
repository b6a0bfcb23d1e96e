"""Keeps the ledger small: counts finished hooks into the totals, deletes the old ones.

Must not import Celery or psycopg2.
"""

import time
from dataclasses import dataclass

from reaper.operations.batches import Progress
from reaper.store import Database, owed_hooks

PRUNE_BATCH = 5_000
"""Rows per transaction: about 50 ms, and short enough for a standby to follow."""

ROLL_UP_BATCH = 50_000
"""Hooks counted per statement; a tick's worth of a busy system is a few thousand."""

SETTLE_SECONDS = 20.0
"""An outcome is visible this long after its `finished_at`, at the latest: above the statement
timeout of 15 s. A later one costs the metrics one count, never a notice."""

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning did; `is_done` is False where its time was spent before the work."""

    pruned: int
    is_done: bool


def prune(
    database: Database,
    *,
    retention_days: float,
    budget_seconds: float | None = None,
    progress: Progress | None = None,
) -> Pruned:
    """Delete finished ledger rows older than the retention.

    1. Count what has finished into the totals, so that metrics survive.
    2. Delete batch after batch, the oldest first, each its own transaction, until one comes back
       short or the time is spent.

    Never deletes a row whose hook has not reached a final state. Safe to repeat, to stop anywhere
    and to run anywhere at once.

    Args:
        database: where the ledger is.
        retention_days: how long a finished row is kept.
        budget_seconds: stop after about so long; the next run goes on. None: until done.
        progress: told after each batch how many rows it deleted.

    Raises:
        StoreError: PostgreSQL refused or is away; batches before it are done.
    """
    budget = float("inf") if budget_seconds is None else budget_seconds
    deadline = time.monotonic() + budget
    while roll_up(database) >= ROLL_UP_BATCH and time.monotonic() < deadline:
        pass
    pruned = 0
    while True:
        count = owed_hooks.prune_hooks(
            database, retention_seconds=retention_days * DAY_SECONDS, batch_size=PRUNE_BATCH
        )
        pruned += count
        if progress is not None:
            progress(count)
        if count < PRUNE_BATCH or time.monotonic() > deadline:
            return Pruned(pruned, is_done=count < PRUNE_BATCH)


def roll_up(database: Database) -> int:
    """Count hooks that finished since the last time into the totals; return how many.

    One statement; an idle one finds nothing. Safe to repeat and to run anywhere at once.

    Raises:
        StoreError: PostgreSQL refused or is away.
    """
    return owed_hooks.roll_up_hooks(
        database, settle_seconds=SETTLE_SECONDS, batch_size=ROLL_UP_BATCH
    )


def count_prunable(database: Database, *, retention_days: float) -> int:
    """Return how many finished ledger rows are older than the retention. Changes nothing.

    Raises:
        StoreError: PostgreSQL refused or is away.
    """
    return owed_hooks.count_prunable_hooks(database, retention_seconds=retention_days * DAY_SECONDS)
