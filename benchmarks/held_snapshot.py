"""P9: 500 leases a second expire while a snapshot is held open; the tick must stay flat."""

import statistics
import time
from collections.abc import Iterator

from benchmarks.stand import Stand, connect
from benchmarks.suite import Result, at_most, say
from reaper.config import Settings
from reaper.reap import run_tick
from reaper.store import Database

SECONDS = 600
RATE = 500
EDGE = 30
"""Ticks at each end whose medians are compared."""

LEASES = """
INSERT INTO job_queue (id, job_type, payload, status, attempt, max_attempts, next_run_at,
    lease_expires_at, worker_id)
SELECT gen_random_uuid(), 'type_1', '{}', 'LEASED', 1, 1 + (n %% 5 > 0)::integer * 7, now(),
    now() + n * interval '100 microseconds', 'w' FROM generate_series(1, %(count)s) AS n
"""
"""Not yet expired: a lease is in the table before its time is over."""

EXPIRED_SECONDS = 0.06
"""After this all of them have expired."""


def measure(stand: Stand) -> Iterator[Result]:
    """One tick a second over what has expired in that second."""
    with stand.clone(5_000) as dsn:
        held = connect(dsn)
        with held.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM job_queue")
        ticks = _ticks(dsn, stand.scaled(SECONDS))
        held.close()
    edge = min(EDGE, len(ticks) // 2)
    first = statistics.median(ticks[:edge])
    last = statistics.median(ticks[-edge:])
    yield at_most(
        "P9",
        "tick after 10 min / at the start",
        last / first,
        2,
        "ratio",
        first_ms=round(first * 1000, 1),
        last_ms=round(last * 1000, 1),
        ticks=len(ticks),
        slowest_ms=round(max(ticks) * 1000, 1),
    )


def _ticks(dsn: str, seconds: int) -> list[float]:
    database, leases = Database(dsn), connect(dsn)
    settings = Settings.load({"database_url": dsn, "interval_seconds": 1.0})
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        second = time.monotonic()
        with leases.cursor() as cursor:
            cursor.execute(LEASES, {"count": RATE})
        time.sleep(EXPIRED_SECONDS)
        began = time.perf_counter()
        result = run_tick(database, settings, lambda _: True, quiet_seconds=0.01)
        times.append(time.perf_counter() - began)
        if result.processed < RATE:
            raise RuntimeError(f"a tick reaped {result.processed} leases of {RATE}")
        if len(times) % 60 == 0:
            say(f"  {len(times)} s: {statistics.median(times[-30:]) * 1000:.1f} ms")
        time.sleep(max(0.0, 1 - (time.monotonic() - second)))
    database.close()
    leases.close()
    return times
