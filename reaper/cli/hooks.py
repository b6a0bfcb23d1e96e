"""`reaper hooks`: see what became of the hooks, and owe them again."""

from dataclasses import asdict
from operator import attrgetter
from typing import Any

import click

from reaper.cli import bulk, documents, selecting
from reaper.cli.listing import JSON, PAYLOAD, Columns, echo_rows
from reaper.cli.selecting import HOOK_ID, LIST_LIMIT
from reaper.cli.session import open_database
from reaper.cli.text import fields
from reaper.operations import hooks as operations
from reaper.selection import require_choice

_LIST: Columns = {
    "hook": attrgetter("hook_id"),
    "job id": attrgetter("job_id"),
    "type": attrgetter("job_type"),
    "run": attrgetter("run_number"),
    "attempt": attrgetter("attempt"),
    "died": attrgetter("created_at"),
    "state": attrgetter("state"),
    "tries": attrgetter("tries"),
    "crashes": attrgetter("crashes"),
    "error": attrgetter("error"),
}

_RETRIABLE = tuple(state for state in operations.STATES if state != "running")


@click.group()
def hooks() -> None:
    """List, show and retry terminal hooks."""


@hooks.command("list")
@selecting.filters(operations.STATES, limit=LIST_LIMIT)
@PAYLOAD
@JSON
def list_(payload: bool, as_json: bool, **filters: Any) -> None:
    """List the ledger, newest death first."""
    chosen = selecting.chosen(**filters)
    found = operations.list_hooks(open_database(), chosen, with_payload=payload)
    echo_rows(found, _LIST, payload=payload, as_json=as_json, nothing="no hooks")


@hooks.command()
@click.argument("hook", type=HOOK_ID)
@PAYLOAD
@JSON
def show(hook: str, payload: bool, as_json: bool) -> None:
    """Show one hook: the death it is owed for, and how it went."""
    found = operations.show_hook(open_database(), hook, with_payload=payload)
    if as_json:
        click.echo(documents.one_object(found))
        return
    shown = asdict(found)
    text = shown.pop("payload_json")
    pairs = [(name.replace("_", " "), value) for name, value in shown.items()]
    click.echo(fields([*pairs, ("payload", text)] if payload else pairs))


@hooks.command()
@click.argument("hooks", type=HOOK_ID, nargs=-1)
@selecting.filters(_RETRIABLE, limit=None)
@bulk.options
def retry(
    hooks: tuple[str, ...], everything: bool, dry_run: bool, as_json: bool, **filters: Any
) -> None:
    """Owe hooks again: by id any that does not run, by filter those that did not complete.

    The handler is called again, with all its tries; the next redelivery rings, within seconds.
    Without --state a filter takes failed, timed_out and unhandled hooks.
    """
    chosen = selecting.chosen(hooks, **filters)
    require_choice(chosen, everything=everything, noun="hooks")
    database = open_database()
    matching = operations.match_retry(database, chosen)
    bulk.run(
        matching.count,
        lambda progress: operations.retry_hooks(database, matching, progress=progress),
        done="owed again",
        dry_run=dry_run,
        as_json=as_json,
    )
