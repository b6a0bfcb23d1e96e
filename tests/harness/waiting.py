"""Waits for what other processes do, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def eventually(check: Callable[[], T], seconds: float = 20.0, every: float = 0.05) -> T:
    """Return the first truthy value of `check`; fail with the last one after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s; last seen: {value!r}")
        time.sleep(every)
