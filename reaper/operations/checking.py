"""What a person asked for, checked against what there is in the database."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from reaper.selection import Selection, check_job_type, check_states
from reaper.store import Database
from reaper.store.dead_letters import list_job_types


def checked(
    database: Database,
    selection: Selection,
    *,
    states: Iterable[str],
    read_id: Callable[[str], str],
) -> Selection:
    """Return `selection` with its ids in their usual spelling.

    Args:
        database: asked for the job types, only where one is chosen.
        selection: what was asked for.
        states: those there are.
        read_id: reads one id.

    Raises:
        SelectionError: an unknown state or job type, or an id that is none.
        StoreError: PostgreSQL refused or is away.
    """
    check_states(selection.states, states)
    if selection.job_type is not None:
        check_job_type(selection.job_type, list_job_types(database))
    return replace(selection, ids=tuple(read_id(text) for text in selection.ids))
