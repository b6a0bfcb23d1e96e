"""`reaper prune`: delete old finished rows of the ledger."""

import json
import sys

import click

from reaper.celery import settings
from reaper.cli.session import open_database
from reaper.operations import pruning


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count, change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def prune(dry_run: bool, as_json: bool) -> None:
    """Delete finished ledger rows older than REAPER_RETENTION_DAYS, in batches.

    Never a row whose hook has not reached a final state. Beat does this daily; totals survive it.
    """
    database = open_database()
    days = settings.retention_days
    count = pruning.count_prunable(database, retention_days=days)
    pruned = 0
    if not dry_run:
        hidden = not sys.stderr.isatty()
        with click.progressbar(length=count, file=sys.stderr, hidden=hidden, label="pruned") as bar:
            result = pruning.prune(database, retention_days=days, progress=bar.update)
        pruned = result.pruned
    if as_json:
        click.echo(json.dumps({"prunable": count, "pruned": pruned, "dry_run": dry_run}))
    elif dry_run:
        click.echo(f"{count} finished rows are older than {days:g} days; nothing was changed")
    else:
        click.echo(f"{pruned} finished rows older than {days:g} days deleted")
