"""Child processes that do not outlive this one: start, watch, stop.

Three nets, one below the other:
1. `Children` is a context manager: leaving it ends every child and every process in its session.
2. PR_SET_PDEATHSIG: on Linux the kernel kills a child when this process ends, even by SIGKILL, and
   Celery asks the same for its pool. Only what a handler started itself can survive that.
3. A child that starts after its parent ended does not start at all.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reaper.launching import launch

_LOOK_AGAIN_SECONDS = 0.02


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@dataclass(frozen=True, slots=True)
class Child:
    """A child in a session of its own, so that Ctrl-C at the terminal reaches only its parent."""

    name: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        return self.process.pid

    def has_ended(self) -> bool:
        """Whether it has ended. It is not reaped yet: until `collect` its id stays its own."""
        if self.process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if not self.has_ended():
            self.process.send_signal(number)

    def collect(self) -> str:
        """Kill what is left of its session and say how it ended. Safe to repeat."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        status = self.process.wait()
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


class Children:
    """The children of this process; leaving the context ends them all.

    Start them from the main thread: a child ends with the thread that started it.
    """

    def __init__(self, *, stop_seconds: float, wait: Callable[[float], bool] = _wait) -> None:
        """Remember how to end.

        Args:
            stop_seconds: how long children may take to end by themselves before they are killed.
            wait: waits so many seconds for them, returns whether to kill them now instead.
        """
        self._stop_seconds = stop_seconds
        self._wait = wait
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        output: int,
    ) -> Child:
        """Start `command`, an absolute path first; both its outputs go to descriptor `output`."""
        process = launch(command, output, env=dict(environment), cwd=directory)
        self._children[name] = Child(name, process)
        return self._children[name]

    def first_ended(self, *, ignore: Sequence[str] = ()) -> Child | None:
        """Return a child that has ended, other than those in `ignore`."""
        for name, child in self._children.items():
            if name not in ignore and child.has_ended():
                return child
        return None

    def stop(self) -> None:
        """End them all, together: SIGTERM, the time they were given, SIGKILL. Safe to repeat."""
        deadline = time.monotonic() + self._stop_seconds
        children = list(self._children.values())
        for child in children:
            child.signal(signal.SIGTERM)
            child.signal(signal.SIGCONT)
        while any(not child.has_ended() for child in children):
            if self._wait(_LOOK_AGAIN_SECONDS) or time.monotonic() > deadline:
                break
        for child in children:
            child.collect()
