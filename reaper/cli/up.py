"""`reaper up`: beat and both workers for development, until Ctrl-C."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from reaper.celery import settings
from reaper.processes import CELERY_COMMANDS, Children, PrefixedOutput, StopSignals, celery_command
from reaper.processes.servers import Servers, development_servers, environment_file
from reaper.urls import mask

_LOOK_EVERY_SECONDS = 0.2

_LAST_WORDS_SECONDS = 0.1

_LEAVE_SECONDS = 5.0
"""Above the drain window: for Celery to say goodbye to its broker."""


@click.command()
@click.option(
    "--servers-only",
    is_flag=True,
    help="Start PostgreSQL and Valkey, and leave schema, beat and workers to you.",
)
@click.option(
    "--env-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the addresses to this file while it runs, as lines for a shell to read.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the embedded servers' data in this directory; else it goes with them.",
)
def up(servers_only: bool, env_file: Path | None, data: Path | None) -> None:
    """Run beat, a reap worker and a hook worker until Ctrl-C, for development.

    Where REAPER_DATABASE_URL or REAPER_BROKER_URL is set it is used, else a server of its own is
    started. The hook worker imports REAPER_HANDLERS from here. If a process ends by itself, all are
    ended and the exit status is 1; a second Ctrl-C does not wait for running hooks.
    """
    with StopSignals() as stop, ExitStack() as stack:
        given = settings.database_url.get_secret_value() if settings.database_url else None
        broker = settings.broker_url.get_secret_value()
        broker_is_set = "broker_url" in settings.model_fields_set
        servers = stack.enter_context(
            development_servers(
                given,
                broker if broker_is_set else None,
                directory=data,
                check_schema=not servers_only,
            )
        )
        stack.enter_context(environment_file(env_file, servers.exports))
        output = PrefixedOutput(tuple(CELERY_COMMANDS))
        stack.callback(output.finish)
        _introduce(output, servers, env_file, is_kept=data is not None)
        children = stack.enter_context(_children(output, stop))
        if not servers_only:
            _start(children, output, servers)
        ended = _run_until_end(children, output, servers, stop)
        output.say(ended or f"{stop.name}: ending all processes")
    sys.exit(1 if ended else 0)


def _children(output: PrefixedOutput, stop: StopSignals) -> Children:
    def wait(seconds: float) -> bool:
        output.pump(seconds)
        return stop.count > 1

    return Children(stop_seconds=settings.drain_window_seconds + _LEAVE_SECONDS, wait=wait)


def _start(children: Children, output: PrefixedOutput, servers: Servers) -> None:
    urls = {"REAPER_DATABASE_URL": servers.database_url, "REAPER_BROKER_URL": servers.broker_url}
    for name in CELERY_COMMANDS:
        pipe = output.open_pipe(name)
        try:
            children.start(
                name,
                celery_command(name, "--loglevel", "INFO"),
                environment=os.environ | urls,
                directory=Path.cwd(),
                output=pipe,
            )
        finally:
            os.close(pipe)


def _run_until_end(
    children: Children, output: PrefixedOutput, servers: Servers, stop: StopSignals
) -> str | None:
    """Print until a signal asks for the end (None) or something ends by itself (a sentence)."""
    while not stop:
        output.pump(_LOOK_EVERY_SECONDS)
        server = servers.first_ended()
        if server is not None:
            return f"{server} ended by itself; ending the others"
        child = children.first_ended()
        if child is not None:
            output.pump(_LAST_WORDS_SECONDS)
            command = f"celery -A reaper {' '.join(CELERY_COMMANDS[child.name])}"
            return f"{child.name} ({command}) ended with {child.collect()}; ending the others"
    return None


def _introduce(
    output: PrefixedOutput, servers: Servers, env_file: Path | None, *, is_kept: bool
) -> None:
    """Say what runs where, and how to reach it from another terminal."""
    if servers.postgres is None:
        output.say(f"PostgreSQL: the one that is set, {mask(servers.database_url)}")
    if servers.valkey is None:
        output.say(f"broker: the one that is set, {mask(servers.broker_url)}")
    if servers.postgres is None and servers.valkey is None:
        return
    data = "their data is kept" if is_kept else "their data goes with them, --data DIR keeps it"
    output.say(f"embedded servers run until Ctrl-C; {data}; to use them from another terminal:")
    if env_file is not None:
        output.say(f"  . {env_file if env_file.is_absolute() else f'./{env_file}'}")
        return
    for line in servers.exports:
        output.say(f"  {mask(line)}")
