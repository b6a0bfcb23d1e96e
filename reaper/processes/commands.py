"""The command lines of beat and both workers, and the environment they get."""

import sys
from collections.abc import Mapping

CELERY_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "beat": ("beat",),
    "reap": ("worker", "-Q", "reaper", "-c", "1", "-n", "reap@%h"),
    "hooks": ("worker", "-Q", "terminal-hooks", "-n", "hooks@%h"),
}
"""The processes of production by their short names (queues: keep in sync with reaper/celery.py)."""

_QUICK_START = ("--without-mingle", "--without-gossip")
"""Workers that have nobody to greet are ready a second earlier."""

_SETTINGS = ("REAPER_", "JOBS_", "CELERY", "BROKER_", "FLOWER_", "PG")
"""Prefixes of the variables that steer reaper, Celery, Flower and libpq."""


def celery_command(name: str, *options: str) -> list[str]:
    """Return the command line of process `name`, run by this Python whatever the PATH holds."""
    arguments = CELERY_COMMANDS[name]
    quick = _QUICK_START if arguments[0] == "worker" else ()
    return [sys.executable, "-m", "celery", "-A", "reaper", *arguments, *quick, *options]


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without anything that steers reaper, Celery or the database client."""
    return {name: value for name, value in environment.items() if not name.startswith(_SETTINGS)}
