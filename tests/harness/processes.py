"""Real processes of a test: started in sessions of their own, ended with the test."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[2]

READY = " ready."
"""What a Celery worker logs when it consumes."""


class Process:
    """A running process, its log and its end."""

    def __init__(self, command: list[str], env: dict[str, str], directory: Path) -> None:
        self.command = command
        self.log_path = Path(tempfile.mkstemp(prefix="log-", dir=directory)[1])
        with self.log_path.open("wb") as log:
            self.popen = subprocess.Popen(
                command,
                env=env,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._seen: dict[int, psutil.Process] = {}

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        """Everything it wrote so far."""
        return self.log_path.read_text("utf-8", "replace")

    @property
    def last_words(self) -> str:
        """Its command and the end of its log."""
        return f"{' '.join(self.command)}\n{self.log[-40_000:]}"

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def wait_for(self, text: str, seconds: float = 30.0) -> Self:
        """Wait until its log holds `text`; fail at once where it ends before."""

        def said() -> bool:
            if text in self.log:
                return True
            if not self.is_running:
                pytest.fail(f"{self.command} ended with {self.popen.returncode}:\n{self.log}")
            return False

        try:
            eventually(said, seconds)
        except pytest.fail.Exception:
            pytest.fail(f"{self.command} did not say {text!r}:\n{self.log}")
        return self

    def ready(self, seconds: float = 40.0) -> Self:
        """Wait until a worker consumes."""
        return self.wait_for(READY, seconds)

    def children(self) -> list[int]:
        """Return the pids of its children and theirs."""
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.pid).children(recursive=True)
            self._seen |= {child.pid: child for child in found}
            return [child.pid for child in found]
        return []

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL it alone; its children are ended with the test."""
        self.children()
        self.signal(signal.SIGKILL)
        self.popen.wait(10)

    def wait(self, seconds: float = 30.0) -> int:
        """Return its exit status; fail where it does not end in time."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.command} did not end within {seconds} s:\n{self.log}")

    def end(self) -> None:
        """End it and all that it started."""
        self.children()
        for victim in (self.popen, *self._seen.values()):
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                victim.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(10)


class Processes:
    """Starts processes on one database and one broker."""

    def __init__(self, directory: Path, dsn: str, broker_url: str) -> None:
        self.directory = directory
        self.dsn = dsn
        self.broker_url = broker_url
        self._started: list[Process] = []

    def at(self, *, dsn: str | None = None, broker_url: str | None = None) -> "Processes":
        """The same on other servers."""
        other = Processes(self.directory, dsn or self.dsn, broker_url or self.broker_url)
        other._started = self._started
        return other

    def beat(self, *args: str, **env: Any) -> Process:
        return self.celery("beat", *args, **env)

    def reap_worker(self, *args: str, **env: Any) -> Process:
        return self.celery(
            "worker", "-Q", "reaper", "-c", "1", "-n", f"reap-{self._n}", *args, **env
        )

    def hook_worker(
        self, *args: str, handlers: str = "tests.harness.handlers", **env: Any
    ) -> Process:
        name = f"hooks-{self._n}"
        return self.celery(
            "worker", "-Q", "terminal-hooks", "-n", name, *args, handlers=handlers, **env
        )

    def celery(self, *args: str, **env: Any) -> Process:
        return self.python("-m", "celery", "-A", "reaper", *args, **env)

    def reaper(self, *args: str, **env: Any) -> Process:
        return self.python("-m", "reaper", *args, **env)

    def python(self, *args: str, **env: Any) -> Process:
        return self.run([sys.executable, *args], **env)

    def run(self, command: list[str], **env: Any) -> Process:
        """Start `command`. Names in `env` get REAPER_ in front and upper case, capitals stay."""
        process = Process(command, self.environment(**env), self.directory)
        self._started.append(process)
        return process

    def environment(self, **env: Any) -> dict[str, str]:
        """Return the processes' environment; a value of None takes the variable out."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("REAPER_", "JOBS_"))}
        given = {k if k.isupper() else f"REAPER_{k.upper()}": v for k, v in env.items()}
        own = {
            "REAPER_DATABASE_URL": self.dsn,
            "REAPER_BROKER_URL": self.broker_url,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        } | given
        return inherited | {k: str(v) for k, v in own.items() if v is not None}

    def end(self) -> None:
        for process in self._started:
            process.end()

    @property
    def last_words(self) -> str:
        """What each process said last."""
        return "\n".join(process.last_words for process in self._started)

    @property
    def _n(self) -> int:
        return len(self._started)
