"""The `reaper` command. Each subcommand is a thin module of its own, imported when it is called.

Exit status of every command: 0 done, 1 done in part or not as planned, 2 refused with a sentence.
"""

import importlib
import sys
from typing import Any

import click

from reaper.errors import ReaperError

_COMMANDS = {
    "dead-letters": ("dead_letters:dead_letters", "List, show, requeue and discard dead letters."),
    "demo": ("demo:demo", "Show everything at work, on servers of its own."),
    "doctor": ("doctor:doctor", "Check the whole deployment; say what is wrong and the cure."),
    "exporter": ("exporter:exporter", "Serve metrics for Prometheus, and /healthz."),
    "hooks": ("hooks:hooks", "List, show and retry terminal hooks."),
    "migrate": ("migrate:migrate", "Create or upgrade the schema `reaper`."),
    "prune": ("prune:prune", "Delete old finished rows of the ledger."),
    "reap": ("reap:reap", "Run one tick now, without a worker."),
    "status": ("status:status", "Show leases, ticks, hooks, queues and workers on one screen."),
    "up": ("up:up", "Run all processes for development."),
}
"""Module and attribute, and the line in `reaper --help`, which so imports none of them."""


class _Lazy(click.Group):
    """Imports a subcommand only when it is named; turns our errors into one line and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"reaper.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ReaperError as error:
            for line in str(error).splitlines():
                click.echo(f"reaper: {line}", err=True)
            sys.exit(2)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reaper")
def main() -> None:
    """Take expired job leases back and deliver every death notice.

    The long-running processes are Celery's: `celery -A reaper beat`, `celery -A reaper worker -Q
    reaper -c 1` and `celery -A reaper worker -Q terminal-hooks`. `reaper up` starts all of them for
    development, `reaper demo` shows them at work.
    """
