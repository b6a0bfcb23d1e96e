"""`reaper status`: leases, ticks, deaths, hooks, queues and workers on one screen."""

import sys
import time
from dataclasses import asdict
from typing import Any, NoReturn

import click

from reaper.celery import settings
from reaper.cli.looking import Look
from reaper.cli.screen import broker_block, database_block, hook_rows
from reaper.cli.session import echo_json, open_database
from reaper.errors import ReaperError
from reaper.operations.facts import BrokerView
from reaper.operations.freshness import staleness
from reaper.operations.overview import DatabaseOverview, read_database
from reaper.store import Database


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.2, max=3600),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show it again every 2 (or SECONDS) seconds, until Ctrl-C.",
)
def status(as_json: bool, watch: float | None) -> None:
    """Show leases, the last tick, deaths by type, hooks, queues, workers and beat.

    Changes nothing. Exit status 2 where the database or the broker cannot be asked.
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json cannot be given together")
    database = open_database()
    if watch:
        _watch(database, watch)
        return
    look = Look()
    seen = read_database(database)
    if as_json:
        echo_json(document(seen, look()))
    else:
        click.echo(database_block(seen, settings.interval_seconds))
        click.echo()
        click.echo(broker_block(look()))
    if isinstance(look(), ReaperError):
        sys.exit(2)


def document(seen: DatabaseOverview, view: BrokerView | ReaperError) -> dict[str, Any]:
    """Return the screen as one JSON object."""
    here = view if isinstance(view, BrokerView) else None
    return {
        "leases": asdict(seen.leases),
        "tick": asdict(seen.tick),
        "stale": staleness(seen.tick, settings.interval_seconds),
        "dead_letters": [asdict(row) for row in seen.dead_letters],
        "hooks": [
            {"job_type": job_type, **counts, "throttled": job_type in seen.throttled}
            for job_type, counts in hook_rows(seen.hooks).items()
        ],
        "oldest_pending_hook_seconds": seen.oldest_pending_seconds,
        "broker": "ok" if here else str(view),
        "queues": here.queues if here else None,
        "beats": here.beats if here else None,
        "workers": [asdict(worker) for worker in here.workers] if here else None,
        "silent": here.missing if here else None,
    }


def _watch(database: Database, seconds: float) -> None:
    """Show the screen again and again: in place on a terminal, one below the other in a pipe."""
    try:
        if sys.stdout.isatty():
            _redraw(database, seconds)
        while True:
            click.echo(_screen(database) + "\n")
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _redraw(database: Database, seconds: float) -> NoReturn:
    from rich.live import Live  # noqa: PLC0415 -- slow to load, and only needed here
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(Text(_screen(database)), refresh=True)
            time.sleep(seconds)


def _screen(database: Database) -> str:
    """The whole screen; what cannot be asked now is said in its place."""
    look = Look()
    try:
        seen = database_block(read_database(database), settings.interval_seconds)
    except ReaperError as error:
        seen = f"database {error}"
    now = time.strftime("%H:%M:%S")
    return f"{now} on this host, Ctrl-C ends this\n\n{seen}\n\n{broker_block(look())}"
