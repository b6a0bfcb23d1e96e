"""Asks the broker in the background, while the database is being read."""

import threading

from reaper.celery import app
from reaper.errors import ReaperError
from reaper.operations.facts import BrokerView
from reaper.watching.view import look


class Look:
    """A look at the broker that has begun; call it for the result. Never raises ReaperError."""

    def __init__(self) -> None:
        self._result: BrokerView | ReaperError = ReaperError("the broker was not asked")
        self._thread = threading.Thread(target=self._run, daemon=True, name="look")
        self._thread.start()

    def __call__(self) -> BrokerView | ReaperError:
        """Return what the broker says, or why it says nothing."""
        self._thread.join()
        return self._result

    def _run(self) -> None:
        try:
            self._result = look(app)
        except ReaperError as error:
            self._result = error
