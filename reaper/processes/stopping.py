"""Signals that ask this process to end: noted here, acted on where nothing is half done."""

import signal
from types import FrameType
from typing import Any, Self

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a supervisor, a closed terminal."""


class StopSignals:
    """Counts the signals that ask for an end while the context is open.

    They are noted, not raised: an exception in the middle of starting a server could leave it
    running. A signal that was ignored before (`nohup`, a shell's background job) stays ignored.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _ASKING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        """Whether an end was asked for."""
        return self.count > 0

    @property
    def name(self) -> str:
        """The first signal's name, such as SIGTERM."""
        return signal.Signals(self._first).name

    @property
    def exit_status(self) -> int:
        """What a shell says of a process ended by the first signal: 128 and its number."""
        return 128 + self._first

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._first = self._first or number
