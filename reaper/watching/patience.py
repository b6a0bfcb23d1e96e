"""Waits so long for an answer and no longer, whatever hangs: a server, a name server, a socket.

Only a thread can be left behind. There is one per question: while it hangs no second one is
started, and everybody who asks meanwhile waits for the same answer. Knows no server.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from reaper.errors import ReaperError

Answer = TypeVar("Answer")


class Unanswered(ReaperError):  # noqa: N818 -- what happened
    """No answer in time."""


class Question(Generic[Answer]):
    """A question that may be asked from many threads at once.

    Args:
        ask: does the asking; never runs twice at the same time.
        name: whom it asks, for the sentence of `Unanswered`.
        patience_seconds: how long to wait for an answer.
        fresh_seconds: how long an answer serves those who ask again.
    """

    def __init__(
        self,
        ask: Callable[[], Answer],
        name: str,
        *,
        patience_seconds: float,
        fresh_seconds: float = 0.0,
    ) -> None:
        self._ask = ask
        self._name = name
        self._patience_seconds = patience_seconds
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._asking: _Asking[Answer] | None = None

    def answer(self) -> Answer:
        """Return the answer.

        Raises:
            Unanswered: not in time.
            Exception: whatever `ask` raised.
        """
        asking = self._begin()
        if not asking.done.wait(self._patience_seconds):
            raise Unanswered(
                f"{self._name} did not answer within {self._patience_seconds:g} s; check that it "
                "is up and not frozen"
            )
        return asking.result()

    def begin(self) -> None:
        """Ask now, to have the answer sooner."""
        self._begin()

    def _begin(self) -> "_Asking[Answer]":
        with self._lock:
            asking = self._asking
            if asking is None or asking.is_older_than(self._fresh_seconds):
                asking = self._asking = _Asking(self._ask)
                threading.Thread(target=asking.run, daemon=True, name=self._name).start()
            return asking


class _Asking(Generic[Answer]):
    """One try to get the answer."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._answers: list[Answer] = []
        self._error: Exception | None = None
        self._done_at = 0.0
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._answers.append(self._ask())
        except Exception as error:  # noqa: BLE001 -- raised again where the answer is wanted
            self._error = error
        self._done_at = time.monotonic()
        self.done.set()

    def is_older_than(self, seconds: float) -> bool:
        return self.done.is_set() and time.monotonic() - self._done_at >= seconds

    def result(self) -> Answer:
        if self._error is not None:
            raise self._error
        return self._answers[0]
