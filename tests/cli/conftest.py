"""Runs `reaper` as a person does: a process of its own, its output and its exit status."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from reaper.cli import main
from reaper.reap import run_tick
from tests.harness.rows import fetch, insert_leased

Done = subprocess.CompletedProcess


@pytest.fixture
def reaper(processes) -> Callable[..., Done]:
    """Run `reaper ...` to its end; keywords are environment variables as in `processes`."""

    def run(*args: str, **env: object) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "reaper", *args],
            env=processes.environment(**env),
            cwd=processes.directory,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def invoke(settings, monkeypatch) -> Callable[..., Done]:
    """Run `reaper ...` inside this process, for commands that only need the database: quicker.

    Keywords are settings.
    """

    def run(*args: str, **values: object) -> Done:
        own = settings(**values)
        for module in ("session", "prune"):
            monkeypatch.setattr(f"reaper.cli.{module}.settings", own)
        result = CliRunner().invoke(main, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(args, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def kill(database, settings, connect) -> Callable[..., list[str]]:
    """Let jobs die by a real reap; return their ids."""

    def die(count: int = 1, **columns) -> list[str]:
        ids = insert_leased(connect(), count, **columns)
        run_tick(database, settings(), lambda _: True, quiet_seconds=0)
        return ids

    return die


@pytest.fixture
def rows(connect) -> Callable[..., list]:
    """Run a statement; return its rows as dicts."""
    connection = connect()
    return lambda text, parameters=None: fetch(connection, text, parameters)
