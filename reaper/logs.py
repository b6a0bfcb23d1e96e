"""How log lines look, and which of Celery's own are left out. Must not import Celery.

`REAPER_LOG_FORMAT=text` writes `time LEVEL event key=value ...`, `json` one object a line. What
Celery says about reaper's own tasks would double reaper's events, every few seconds and on an idle
system too: it is left out unless the level is debug.
"""

import json
import logging
import sys
from collections.abc import Collection

from reaper.urls import mask

TASK_LOGGERS = (
    "celery.beat",
    "celery.worker.strategy",
    "celery.app.trace",
    "celery.worker.request",
)
"""Where Celery says that a task was sent, received, succeeded, failed or ran into a limit."""


class TextFormatter(logging.Formatter):
    """`time level event key=value ...`, one line; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = f"{self.formatTime(record)} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return mask(line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event or message, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event = getattr(record, "event", None)
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"event": event} if event else {"message": mask(record.getMessage())}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = mask(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class OwnTaskNoise(logging.Filter):
    """Drops Celery's lines about `tasks`, unless the process logs at debug level.

    Errors are kept, such as a task that raised what it should not or a tick that was killed: no
    event of reaper says so. The limits of `timed`, a hook, are one of reaper's events.
    """

    def __init__(self, tasks: Collection[str], timed: str) -> None:
        super().__init__()
        self._tasks = frozenset(tasks)
        self._timed = timed

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is kept."""
        if logging.getLogger().getEffectiveLevel() <= logging.DEBUG:
            return True
        if record.levelno < logging.ERROR:
            return self._tasks.isdisjoint(_names_in(record))
        return record.name != "celery.worker.request" or not self._is_limit(record)

    def _is_limit(self, record: logging.LogRecord) -> bool:
        """Whether it says that a hook's hard limit came, or says so again without a name."""
        again = any(type(each).__name__ == "TimeLimitExceeded" for each in record.args or ())
        return again or self._timed in _names_in(record)


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter for `REAPER_LOG_FORMAT`."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


def configure(log_format: str, level: int) -> None:
    """Log to stderr from a process that is not Celery's. Safe to repeat."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    logging.basicConfig(handlers=[handler], level=level)


def leave_out(tasks: Collection[str], timed: str) -> None:
    """Leave out what Celery says about `tasks`, and the limits of `timed`. Safe to repeat."""
    for name in TASK_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, OwnTaskNoise) for each in logger.filters):
            logger.addFilter(OwnTaskNoise(tasks, timed))


def _names_in(record: logging.LogRecord) -> set[str]:
    """The task name among a record's arguments: Celery gives a dict with `name`, or a tuple."""
    if isinstance(record.args, dict):
        return {str(record.args.get("name"))}
    return {each for each in record.args or () if isinstance(each, str)}
