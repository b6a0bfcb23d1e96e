"""Owed hooks, for a person: list, show, retry. Must not import Celery or psycopg2.

Retrying goes through the ledger: the row is owed again, and the next redelivery rings.
"""

from dataclasses import dataclass, replace

from reaper.jobs import HookState
from reaper.operations.batches import BulkResult, Progress, walk
from reaper.operations.checking import checked
from reaper.selection import Selection, SelectionError, hook_id
from reaper.store import Database
from reaper.store import owed_hooks as store
from reaper.store.owed_hooks import OwedHook

STATES = tuple(state.value for state in HookState)

UNHAPPY = (HookState.FAILED.value, HookState.TIMED_OUT.value, HookState.UNHANDLED.value)
"""What a bulk retry takes where no state is given: final, and not completed."""


@dataclass(frozen=True, slots=True)
class Matching:
    """What a bulk retry is about to owe again: how many, and the highest id among them."""

    selection: Selection
    count: int
    highest_id: int


def list_hooks(
    database: Database, selection: Selection, *, with_payload: bool = False
) -> list[OwedHook]:
    """Return ledger rows, newest death first.

    Raises:
        SelectionError: an unknown state or job type.
        StoreError: PostgreSQL refused or is away.
    """
    return store.list_hooks(database, _checked(database, selection), with_payload=with_payload)


def show_hook(database: Database, hook: str, *, with_payload: bool = False) -> OwedHook:
    """Return one ledger row.

    Raises:
        SelectionError: no number, or no such hook.
        StoreError: PostgreSQL refused or is away.
    """
    only = Selection(ids=(hook_id(hook),))
    found = store.list_hooks(database, only, with_payload=with_payload)
    if not found:
        raise SelectionError(_unknown(only.ids[0]))
    return found[0]


def match_retry(database: Database, selection: Selection) -> Matching:
    """Return what a retry of `selection` would owe again. Changes nothing.

    By id any hook that is not running; by filter, where no state is given, those that failed, timed
    out or had no handler.

    Raises:
        SelectionError: an unknown job type, state or id, or a hook that runs now.
        StoreError: PostgreSQL refused or is away.
    """
    chosen = _checked(database, selection)
    if HookState.RUNNING in chosen.states:
        raise SelectionError(
            "running hooks cannot be retried: each ends within its time limit, wait for that"
        )
    if chosen.ids:
        _require_idle(database, chosen)
    elif not chosen.states:
        chosen = replace(chosen, states=UNHAPPY)
    count, highest = store.count_hooks(database, chosen)
    return Matching(chosen, chosen.limited(count), highest)


def retry_hooks(
    database: Database, matching: Matching, *, progress: Progress | None = None
) -> BulkResult:
    """Owe hooks again: pending, due at once, with all their tries; the next redelivery rings.

    Batch after batch, newest first, each its own transaction. A hook that runs meanwhile, or is
    held by somebody else, is left alone. Repeating it runs handlers again: they are idempotent.

    Args:
        database: where the ledger is.
        matching: from `match_retry`.
        progress: told after each batch how many are owed again.

    Raises:
        StoreError: PostgreSQL refused or is away; batches before it are done.
    """

    def step(before: int, size: int) -> tuple[int, int | None]:
        return store.retry_hooks(database, matching.selection, before_id=before, batch_size=size)

    changed = walk(step, matching.highest_id + 1, most=matching.count, progress=progress)
    return BulkResult(matching.count, changed)


def _checked(database: Database, selection: Selection) -> Selection:
    return checked(database, selection, states=STATES, read_id=hook_id)


def _require_idle(database: Database, selection: Selection) -> None:
    """Refuse the whole action where one of the ids is unknown or runs."""
    known = {str(row.hook_id): row.state for row in store.list_hooks(database, selection)}
    for wanted in selection.ids:
        if wanted not in known:
            raise SelectionError(_unknown(wanted) + "; nothing was changed")
        if known[wanted] == HookState.RUNNING:
            raise SelectionError(
                f"hook {wanted} runs now: it ends within its time limit, wait for that; nothing "
                "was changed"
            )


def _unknown(wanted: str) -> str:
    return f"there is no hook {wanted} in the ledger; `reaper hooks list` shows those there are"
