"""`reaper dead-letters`: see what died and why, put it back or give it up."""

from operator import attrgetter
from typing import Any

import click

from reaper.cli import bulk, selecting
from reaper.cli.history import echo_history
from reaper.cli.listing import JSON, PAYLOAD, Columns, echo_rows
from reaper.cli.selecting import JOB_ID, LIST_LIMIT
from reaper.cli.session import open_database
from reaper.operations import dead_letters as operations
from reaper.selection import require_choice

_LIST: Columns = {
    "job id": attrgetter("job_id"),
    "type": attrgetter("job_type"),
    "run": attrgetter("run_number"),
    "attempt": attrgetter("attempt"),
    "died": attrgetter("failed_at"),
    "state": attrgetter("state"),
    "hook": attrgetter("hook_state"),
    "error": lambda row: row.error_message or row.error_code,
}


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show, requeue and discard dead letters."""


@dead_letters.command("list")
@selecting.filters(operations.STATES, limit=LIST_LIMIT)
@PAYLOAD
@JSON
def list_(payload: bool, as_json: bool, **filters: Any) -> None:
    """List dead letters, newest first: those still dead, or those in a --state."""
    chosen = selecting.chosen(**filters)
    found = operations.list_dead_letters(open_database(), chosen, with_payload=payload)
    echo_rows(found, _LIST, payload=payload, as_json=as_json, nothing="no dead letters")


@dead_letters.command()
@click.argument("job", type=JOB_ID)
@PAYLOAD
@JSON
def show(job: str, payload: bool, as_json: bool) -> None:
    """Show one job that died: its deaths, hooks and attempts, also after a requeue."""
    history = operations.show_dead_letter(open_database(), job, with_payload=payload)
    echo_history(history, as_json=as_json)


@dead_letters.command()
@click.argument("jobs", type=JOB_ID, nargs=-1)
@selecting.filters((), limit=None)
@click.option("--from-start", is_flag=True, help="Drop the checkpoint the last run left.")
@bulk.options
def requeue(
    jobs: tuple[str, ...],
    from_start: bool,
    everything: bool,
    dry_run: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Put dead jobs back: a new run from attempt 0. By id, by filter, or --all.

    Every death stays readable. Only what is still dead-lettered is touched.
    """
    chosen = selecting.chosen(jobs, **filters)
    require_choice(chosen, everything=everything, noun="dead letters")
    database = open_database()
    matching = operations.match_dead(database, chosen)
    bulk.run(
        matching.count,
        lambda progress: operations.requeue_dead_letters(
            database, matching, keep_checkpoint=not from_start, progress=progress
        ),
        done="requeued",
        dry_run=dry_run,
        as_json=as_json,
    )


@dead_letters.command()
@click.argument("jobs", type=JOB_ID, nargs=-1)
@selecting.filters((), limit=None)
@bulk.options
def discard(
    jobs: tuple[str, ...], everything: bool, dry_run: bool, as_json: bool, **filters: Any
) -> None:
    """Give dead jobs up: CANCELED, off the list. By id, by filter, or --all.

    Nothing is deleted, and a hook that is still owed still runs.
    """
    chosen = selecting.chosen(jobs, **filters)
    require_choice(chosen, everything=everything, noun="dead letters")
    database = open_database()
    matching = operations.match_dead(database, chosen)
    bulk.run(
        matching.count,
        lambda progress: operations.discard_dead_letters(database, matching, progress=progress),
        done="discarded",
        dry_run=dry_run,
        as_json=as_json,
    )
