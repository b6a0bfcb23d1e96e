"""How every action on many rows looks: the count first, a progress bar, the result last."""

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from reaper.errors import StoreError
from reaper.operations.batches import BulkResult, Progress

Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """Add --all, --dry-run and --json to a command."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--dry-run", is_flag=True, help="Only count, change nothing."),
        click.option("--all", "everything", is_flag=True, help="All, where no filter is given."),
    ):
        command = option(command)
    return command


def run(
    count: int,
    act: Callable[[Progress], BulkResult],
    *,
    done: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Say the count, act, say what was done. Exit status 1 where not all of them were changed.

    Args:
        count: how many rows match.
        act: changes them; is handed what tells the progress bar.
        done: what has happened to them then, `requeued`.
        dry_run: stop after the count.
        as_json: one JSON object on stdout instead of text.
    """
    if dry_run:
        result = BulkResult(count, 0)
    else:
        click.echo(f"{count} match", err=True)
        result = _act(count, act, done)
    if as_json:
        document = {"matching": count, "changed": result.changed, "dry_run": dry_run}
        click.echo(json.dumps(document))
    elif dry_run:
        click.echo(f"{count} would be {done}; nothing was changed")
    else:
        click.echo(f"{result.changed} {done}")
    if result.left and not dry_run:
        click.echo(
            f"reaper: {result.left} were left alone: they moved on, belong to a workflow, or are "
            "held by another session; run it again",
            err=True,
        )
        sys.exit(1)


def _act(count: int, act: Callable[[Progress], BulkResult], done: str) -> BulkResult:
    changed = 0
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=count, file=sys.stderr, hidden=hidden, label=done) as bar:

        def progress(more: int) -> None:
            nonlocal changed
            changed += more
            bar.update(more)

        try:
            return act(progress)
        except StoreError as error:
            message = f"{error}; {changed} of {count} were {done} before that and stay so"
            raise StoreError(message, sqlstate=error.sqlstate) from None
