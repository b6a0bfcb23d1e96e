"""Dead letters, for a person: list, show, requeue, discard. Must not import Celery or psycopg2.

Every death stays readable: requeueing and discarding touch the job's row in the queue only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from reaper.operations.batches import BulkResult, Progress, walk
from reaper.operations.checking import checked
from reaper.selection import Selection, SelectionError, job_id
from reaper.store import Database
from reaper.store import dead_letters as store
from reaper.store.dead_letters import Attempt, DeadLetter, Death, QueuedJob, Step
from reaper.store.owed_hooks import OwedHook, list_hooks

STATES = ("dead", "requeued", "discarded")
"""What became of a dead letter: nothing yet, a new run, or given up."""

_DEAD = STATES[:1]

HISTORY_ROWS = 50
"""Attempts and deaths of one job that `show` lists: a few screens."""

_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All that is known of one job that died. `deaths` come from the ledger, newest first.

    `job` and `dead_letter` are None where the queue's row was deleted since.
    """

    job_id: str
    job: QueuedJob | None
    dead_letter: DeadLetter | None
    deaths: list[OwedHook]
    attempts: list[Attempt]


@dataclass(frozen=True, slots=True)
class Matching:
    """What a bulk action is about to change: how many, as counted at `counted_at`."""

    selection: Selection
    count: int
    counted_at: datetime


def list_dead_letters(
    database: Database, selection: Selection, *, with_payload: bool = False
) -> list[DeadLetter]:
    """Return dead letters, newest first; without states in `selection` those still dead.

    Raises:
        SelectionError: an unknown state or job type.
        StoreError: PostgreSQL refused or is away.
    """
    return store.list_dead_letters(
        database, _checked(database, selection), with_payload=with_payload
    )


def show_dead_letter(
    database: Database, job: str, *, with_payload: bool = False, deaths: int = HISTORY_ROWS
) -> JobHistory:
    """Return one job's dead letter, its deaths in the ledger and its attempts.

    Raises:
        SelectionError: no uuid, or no such job ever died here.
        StoreError: PostgreSQL refused or is away.
    """
    wanted = job_id(job)
    only = Selection(ids=(wanted,), states=STATES)
    found = store.list_dead_letters(database, only, with_payload=with_payload)
    died = list_hooks(database, Selection(limit=deaths), job_id=wanted, with_payload=with_payload)
    if not (found or died):
        raise SelectionError(
            f"no job {wanted} died in this database; `reaper dead-letters list --state dead "
            "--state requeued --state discarded` shows those that did"
        )
    return JobHistory(
        job_id=wanted,
        job=store.read_job(database, wanted),
        dead_letter=found[0] if found else None,
        deaths=died,
        attempts=store.list_attempts(database, wanted, row_limit=HISTORY_ROWS),
    )


def match_dead(database: Database, selection: Selection) -> Matching:
    """Return what an action on `selection` would change. Changes nothing.

    Raises:
        SelectionError: an unknown job type or state, or an id that is not dead-lettered now.
        StoreError: PostgreSQL refused or is away.
    """
    chosen = _checked(database, selection)
    if chosen.states != _DEAD:
        raise SelectionError(
            f"only dead letters in state dead can be changed, not {', '.join(chosen.states)}"
        )
    if chosen.ids:
        _require_dead(database, chosen)
    count, now = store.count_dead_letters(database, chosen)
    return Matching(chosen, chosen.limited(count), now)


def requeue_dead_letters(
    database: Database,
    matching: Matching,
    *,
    keep_checkpoint: bool = True,
    progress: Progress | None = None,
) -> BulkResult:
    """Put dead-lettered jobs back: run_number + 1, attempt 0, claimable at once.

    Batch after batch, newest death first, each its own transaction with a REQUEUED event. A job
    that is no longer dead-lettered, or held by somebody else, is left alone. Safe to repeat: what
    was put back no longer matches.

    Args:
        database: where the jobs are.
        matching: from `match_dead`.
        keep_checkpoint: begin the new run at the old one's checkpoint.
        progress: told after each batch how many were put back.

    Raises:
        StoreError: PostgreSQL refused or is away; batches before it are done.
    """

    def step(before: Death, size: int) -> Step:
        return store.requeue_dead_letters(
            database,
            matching.selection,
            before=before,
            batch_size=size,
            keep_checkpoint=keep_checkpoint,
        )

    return _walk(matching, step, progress)


def discard_dead_letters(
    database: Database, matching: Matching, *, progress: Progress | None = None
) -> BulkResult:
    """Give dead-lettered jobs up: they become CANCELED, with an event; nothing is deleted.

    Otherwise like `requeue_dead_letters`. A hook that is still owed still runs.

    Raises:
        StoreError: PostgreSQL refused or is away; batches before it are done.
    """

    def step(before: Death, size: int) -> Step:
        return store.discard_dead_letters(
            database, matching.selection, before=before, batch_size=size
        )

    return _walk(matching, step, progress)


def _walk(
    matching: Matching, step: Callable[[Death, int], Step], progress: Progress | None
) -> BulkResult:
    def stepped(before: Death, size: int) -> tuple[int, Death | None]:
        done = step(before, size)
        return done.changed, done.last

    start = Death(matching.counted_at.astimezone(UTC), _LAST_ID)
    changed = walk(stepped, start, most=matching.count, progress=progress)
    return BulkResult(matching.count, changed)


def _checked(database: Database, selection: Selection) -> Selection:
    """Check the selection; without states it means those still dead."""
    chosen = checked(database, selection, states=STATES, read_id=job_id)
    return replace(chosen, states=chosen.states or _DEAD)


def _require_dead(database: Database, selection: Selection) -> None:
    """Refuse the whole action where one of the ids is not dead-lettered."""
    everything = Selection(ids=selection.ids, states=STATES)
    known = {row.job_id: row.state for row in store.list_dead_letters(database, everything)}
    for wanted in selection.ids:
        if wanted not in known:
            raise SelectionError(
                f"job {wanted} has no dead letter; `reaper dead-letters list` shows those that "
                "have; nothing was changed"
            )
        if known[wanted] != "dead":
            raise SelectionError(
                f"job {wanted} is not dead-lettered any more, it was {known[wanted]}; `reaper "
                f"dead-letters show {wanted}` shows its runs; nothing was changed"
            )
