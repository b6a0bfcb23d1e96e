"""The `reaper` command. Each subcommand is a thin module of its own, imported when it is called."""

import importlib
import sys
from typing import Any

import click

from reaper.errors import ReaperError

_COMMANDS = {
    "dead-letters": "reaper.cli.dead_letters:dead_letters",
    "demo": "reaper.cli.demo:demo",
    "doctor": "reaper.cli.doctor:doctor",
    "exporter": "reaper.cli.exporter:exporter",
    "hooks": "reaper.cli.hooks:hooks",
    "migrate": "reaper.cli.migrate:migrate",
    "prune": "reaper.cli.prune:prune",
    "reap": "reaper.cli.reap:reap",
    "status": "reaper.cli.status:status",
    "up": "reaper.cli.up:up",
}


class _Lazy(click.Group):
    """Imports a subcommand only when it is named; turns our errors into one line and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

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
