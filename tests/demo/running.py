"""Runs the `reaper` command as a person would, and sees who is left afterwards."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.harness.processes import Process, Processes
from tests.harness.waiting import eventually

_AS_FROM_A_TERMINAL = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
directory, errors, *command = sys.argv[1:]
os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
os.chdir(directory)
os.execv(command[0], command)
"""
"""Signals that the test run itself ignores would else stay ignored; stderr goes to a file."""


class Command:
    """A running `reaper` command and everyone it ever started."""

    def __init__(self, process: Process, errors: Path) -> None:
        self.process = process
        self._errors = errors
        self._family: dict[int, psutil.Process] = {}

    @property
    def stdout(self) -> str:
        return self.process.log

    @property
    def stderr(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""

    def family(self) -> list[psutil.Process]:
        """Remember and return who descends from it, servers and pool children included."""
        for child in self.process.children():
            if child not in self._family and psutil.pid_exists(child):
                self._family[child] = psutil.Process(child)
        return list(self._family.values())

    def named(self, argument: str) -> list[psutil.Process]:
        """Return the descendants that run and have `argument` on their command line."""
        return [p for p in self.family() if _runs(p) and argument in _arguments(p)]

    def servers(self) -> set[str]:
        """Return the names of the embedded servers among the descendants that run."""
        commands = ["".join(_arguments(p)[:1]) for p in self.family() if _runs(p)]
        names = {"postgres", "valkey-server"}
        return {name for name in names if any(f"/{name}" in command for command in commands)}

    def wait_for_family(self, count: int) -> None:
        """Wait until at least `count` descendants have been seen."""
        eventually(lambda: len(self.family()) >= count, 60)

    def wait(self, seconds: float = 70.0) -> int:
        """Wait for its end, remembering its descendants; return its exit status."""

        def has_ended() -> bool:
            self.family()
            return not self.process.is_running

        eventually(has_ended, seconds, every=0.2)
        return self.process.wait()

    def end(self) -> None:
        """Ask it and all who descend from it to end, as Ctrl-C in its terminal does."""
        for process in (*self.family(), psutil.Process(self.process.pid)):
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def left(self) -> list[psutil.Process]:
        """Return the descendants that still run."""
        return [p for p in self._family.values() if _runs(p)]

    def ended_with(self, status: int) -> bool:
        """Whether it ended with `status` and nobody is left; fails with what it said."""
        found = self.wait()
        assert found == status, f"{found}\n{self.stdout}\n{self.stderr}"
        assert self._family, "it started nobody"
        return self.left() == []


def start(processes: Processes, directory: Path, *arguments: str, **env: Any) -> Command:
    """Start `reaper` with `arguments` in `directory`."""
    errors = processes.directory / f"stderr-{len(list(processes.directory.iterdir()))}"
    launch = [sys.executable, "-c", _AS_FROM_A_TERMINAL, str(directory), str(errors)]
    process = processes.run([*launch, sys.executable, "-m", "reaper", *arguments], **env)
    return Command(process, errors)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
