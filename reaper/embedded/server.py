"""One server from a wheel as a child process: start, stop, its directory, its log.

Must not know which server it is, nor import a client of one.
"""

import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from reaper.errors import ReaperError
from reaper.launching import SAME_OWNER, launch

START_SECONDS = 30.0
"""A start takes about one second; recovery after a crash, on a slow disk, may take many more."""

STOP_SECONDS = 20.0
"""How long a server may take to stop before it is killed; a checkpoint may be in it."""

SOCKET_PATH_MAX = 100
"""The kernel takes 107 characters on Linux and 103 on macOS for a socket's path."""

PORTS = range(15_000, 32_000)
"""Below the ports the kernel gives to outgoing connections: a client that reconnects to a stopped
server there could end up talking to itself."""

PRIVATE = 0o077
"""The servers' umask: data, logs and sockets are their user's alone."""


class EmbeddedServer(ABC):
    """A server process, its directory and its log."""

    title: str
    death_signal: signal.Signals

    def __init__(self, directory: Path | None) -> None:
        self._given = directory.absolute() if directory else None
        self._directory: Path | None = None
        self._temporary: list[Path] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process.

        Raises:
            ReaperError: it is not running.
        """
        if not self.is_running or self._process is None:
            raise ReaperError(f"the embedded {self.title} is not running; call start() first")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def directory(self) -> Path:
        """Where its data and its log are; a temporary one changes with every first start."""
        if self._directory is None:
            self._directory = self._given or self._make_temporary()
            self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory

    @property
    def log_path(self) -> Path:
        """Everything the server wrote."""
        return self.directory / f"{self.title.lower()}.log"

    def start(self) -> None:
        """Start the server and wait until it answers. Does nothing while it runs.

        Raises:
            ReaperError: the wheels are not installed, or the server did not start; with the reason.
        """
        if self.is_running:
            return
        try:
            self._start()
        except BaseException:
            self._end(signal.SIGKILL)
            self._remove_temporary()
            raise

    def stop(self) -> None:
        """Stop the server; remove its directory if it is a temporary one. Safe to repeat."""
        self._end(signal.SIGTERM)
        self._remove_temporary()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool: ...

    def _launch(self, command: Sequence[str], owner: tuple[int, int] = SAME_OWNER) -> None:
        """Start the server's process and wait until it is ready."""
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = launch(
                command,
                log.fileno(),
                death_signal=self.death_signal,
                owner=owner,
                cwd=self.directory,
                umask=PRIVATE,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(self._process):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise ReaperError(
                    f"the embedded {self.title} {'ended' if ended else 'hung'} while starting: "
                    f"{log_reason(self.log_path, offset)}; its log is {self.log_path}"
                )
            time.sleep(0.005)

    def _end(self, *signals: signal.Signals, seconds: float = STOP_SECONDS) -> None:
        """Send one signal after another until the process has ended, SIGKILL last."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (*signals, signal.SIGKILL):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                return

    def _make_temporary(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix="reaper-"))
        path.chmod(0o711)  # the server's user must get through to what is its own
        self._temporary.append(path)
        return path

    def _remove_temporary(self) -> None:
        while self._temporary:
            shutil.rmtree(self._temporary.pop(), ignore_errors=True)
        self._directory = None


def log_reason(log_path: Path, offset: int) -> str:
    """Return the last line the server wrote since `offset`, the reason of a failed start."""
    with log_path.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    wanted = [line for line in lines if "FATAL" in line or "error" in line.lower()] or lines
    return wanted[-1].strip() if wanted else "it wrote nothing"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    order = list(PORTS)
    random.shuffle(order)
    for port in order:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise ReaperError("no port of 127.0.0.1 is free; end some servers")
