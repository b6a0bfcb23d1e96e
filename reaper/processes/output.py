"""The outputs of several processes as one stream of lines, each with its process's name."""

import os
import selectors
import sys
from collections.abc import Mapping

import click

_CHUNK = 65_536

_COLOURS: Mapping[str, str] = {"beat": "magenta", "reap": "cyan", "hooks": "green"}


class PrefixedOutput:
    """Pipes for processes to write to; `pump` prints what arrived."""

    def __init__(self, names: Mapping[str, object] | tuple[str, ...]) -> None:
        self._width = max(map(len, names))
        self._selector = selectors.DefaultSelector()
        self._rests: dict[str, bytes] = {}

    def open_pipe(self, name: str) -> int:
        """Return the descriptor that process `name` writes to; close it once the process has it."""
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._selector.register(read_end, selectors.EVENT_READ, name)
        self._rests[name] = b""
        return write_end

    def pump(self, seconds: float) -> bool:
        """Print the lines that arrive within `seconds`; return whether anything did."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            self._read(key.fd, key.data)
        return bool(ready)

    def finish(self) -> None:
        """Print what is still in the pipes, last lines without an end included, and close them."""
        while self.pump(0):
            pass
        for key in list(self._selector.get_map().values()):
            self._close(key.fd, key.data)
        self._selector.close()

    def say(self, text: str) -> None:
        """Print a line of our own among the others."""
        self._print("up", text)

    def _read(self, descriptor: int, name: str) -> None:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._close(descriptor, name)
            return
        *lines, self._rests[name] = (self._rests[name] + chunk).split(b"\n")
        for line in lines:
            self._print(name, line.decode("utf-8", "replace"))

    def _close(self, descriptor: int, name: str) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        rest = self._rests.pop(name)
        if rest:
            self._print(name, rest.decode("utf-8", "replace"))

    def _print(self, name: str, text: str) -> None:
        prefix = click.style(f"{name:<{self._width}} |", fg=_COLOURS.get(name, "yellow"))
        click.echo(f"{prefix} {text}")
        sys.stdout.flush()
