"""`reaper demo`: see it at work, on servers of its own."""

import json
import sys
from contextlib import suppress

import click

from reaper.demo.screen import choose_screen
from reaper.demo.stage import Stopped, run
from reaper.processes import StopSignals


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def demo(as_json: bool) -> None:
    """Kill workers and see their jobs taken back and every death notice delivered.

    Takes less than half a minute, on a PostgreSQL and a Valkey of its own: your settings, databases
    and files are not touched. Exit status 0 only if every planned outcome was found in the
    database.
    """
    with StopSignals() as stop:
        try:
            with choose_screen(sys.stdout, sys.stderr, as_json=as_json) as screen:
                summary = run(screen, stop)
        except Stopped:
            with suppress(OSError):  # the terminal may be what went away
                click.echo(f"reaper demo: ended by {stop.name}; nothing is left running", err=True)
            sys.exit(stop.exit_status)
    if as_json:
        click.echo(json.dumps(summary))
    sys.exit(0 if summary["ok"] else 1)
