"""The reaper's app on the stand's servers, and the broker seen from outside."""

import os
import time
from typing import Any

import redis

from benchmarks.stand import Stand


def load_app(stand: Stand) -> Any:
    """Import and return reaper's Celery app, set to the stand's broker."""
    os.environ["REAPER_BROKER_URL"] = stand.broker_url
    os.environ["REAPER_DATABASE_URL"] = stand.dsn
    from reaper.celery import app  # noqa: PLC0415 -- it reads the environment

    return app


def flush(stand: Stand) -> None:
    """Empty the broker."""
    with redis.Redis.from_url(stand.broker_url) as client:
        client.flushall()


def seconds_to_empty(stand: Stand, prefix: str, queue: str, seconds: float = 600.0) -> float:
    """Wait until a queue has begun to shrink, then until it and its unacked are empty.

    Returns:
        The seconds between the two, the same for any Celery worker.
    """
    with redis.Redis.from_url(stand.broker_url) as client:
        full = client.llen(f"{prefix}{queue}")
        deadline = time.monotonic() + seconds
        began = None
        while time.monotonic() < deadline:
            waiting = client.llen(f"{prefix}{queue}")
            if began is None and waiting < full:
                began = time.monotonic()
            if not waiting and not client.hlen(f"{prefix}unacked"):
                return time.monotonic() - (began or deadline)
            time.sleep(0.02)  # asking takes time from what is measured
    raise TimeoutError(f"{queue} is not empty after {seconds} s")
