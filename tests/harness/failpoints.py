"""Kills a real process at a chosen line: `python -m tests.harness.failpoints POINT... -- ARGS`.

The product has no failpoints of its own; this wraps the function at an arrow of the flow, then
starts `celery ARGS`, so that only tests can switch one on. A point is
`module:attribute:before|after`, with `:n` for the n-th call (1). It ends the process that gets
there with SIGKILL.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any


def arm(point: str) -> None:
    """Wrap the function that `point` names."""
    module_name, path, moment, *nth = point.split(":")
    owner: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    setattr(owner, name, _killing(getattr(owner, name), moment, int(nth[0]) if nth else 1))


def _killing(function: Callable[..., Any], moment: str, nth: int) -> Callable[..., Any]:
    calls = 0

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if moment == "before" and calls == nth:
            die(function)
        result = function(*args, **kwargs)
        if moment == "after" and calls == nth:
            die(function)
        return result

    return wrapped


def die(function: Callable[..., Any]) -> None:
    """End this process as a machine does that loses power."""
    sys.stderr.write(f"failpoint {function.__qualname__}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    from celery.__main__ import main as celery  # noqa: PLC0415 -- the points come first

    cut = sys.argv.index("--")
    points, sys.argv = sys.argv[1:cut], ["celery", "-A", "reaper", *sys.argv[cut + 1 :]]
    sys.path.insert(0, str(Path.cwd()))
    for point in points:
        arm(point)
    celery()


if __name__ == "__main__":
    main()
