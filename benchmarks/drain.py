"""P1: the drain of expired leases, beside the floor, a bare UPDATE and the row-by-row shape."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.stand import Stand, connect, lease_and_abandon, run, settle
from benchmarks.suite import Result, at_least, at_most, interleaved, ratio, rounded
from reaper.config import Settings
from reaper.reap import run_tick
from reaper.store import Database

OTHERS = 500_000
SIZES = (10_000, 100_000)
ROW_BY_ROW = 2_000
"""Rows of the row-by-row shape, timed per row: 10,000 of them each round would take minutes."""

LARGE_BATCH = 2_000
"""A second REAPER_CLAIM_BATCH_SIZE: shows what parsing, planning and committing a batch costs."""

WARM_UP = 10
"""Leases drained before, so that no variant's time holds the first use of a connection."""

FLOOR = Path(__file__).with_name("floor.sql").read_text("utf-8")
BARE = """
UPDATE job_queue
SET
    status = 'PENDING',
    lease_expires_at = NULL,
    worker_id = NULL,
    last_heartbeat_at = NULL,
    next_run_at = now() + interval '30 seconds',
    updated_at = now()
WHERE status = 'LEASED' AND lease_expires_at < now()
"""
ROW = Path(__file__).with_name("row_by_row.sql").read_text("utf-8")

Drain = Callable[[], object]
"""Takes back all expired leases."""

Draining = Callable[[str], AbstractContextManager[Drain]]
"""Opens a connection to a database and gives its drain."""


def measure(stand: Stand) -> Iterator[Result]:
    """Drain 10 k and 100 k leases among 500 k finished jobs, 1 in 5 exhausted."""
    rows = stand.scaled(ROW_BY_ROW)
    large = partial(reaper, claim_batch_size=LARGE_BATCH)
    floor, bare = partial(at_once, text=FLOOR), partial(at_once, text=BARE)
    for full in SIZES:
        size = stand.scaled(full)
        figures = interleaved(
            {
                "reaper": lambda size=size: seconds(stand, size, reaper),
                "large": lambda size=size: seconds(stand, size, large),
                "floor": lambda size=size: seconds(stand, size, floor),
                "bare": lambda size=size: seconds(stand, size, bare),
                "rows": lambda size=size: seconds(stand, rows, row_by_row) * size / rows,
            },
            stand.rounds,
        )
        shown = rounded(figures)
        name = f"{full // 1000} k leases"
        yield at_most(
            "P1", f"{name} / floor", ratio(figures, "reaper", "floor"), 1.05, "ratio", seconds=shown
        )
        yield at_most("P1", f"{name} / bare UPDATE", ratio(figures, "reaper", "bare"), 4, "ratio")
        yield at_least("P1", f"row by row / {name}", ratio(figures, "rows", "reaper"), 15, "ratio")
        name = f"{name} in batches of {LARGE_BATCH}"
        value = ratio(figures, "large", "floor")
        yield Result("P1", f"{name} / floor", value, "ratio", "report", None)
        value = ratio(figures, "large", "bare")
        yield Result("P1", f"{name} / bare UPDATE", value, "ratio", "report", None)


def seconds(stand: Stand, size: int, draining: Draining) -> float:
    """Drain `size` leases on a connection that has drained a few before, as a worker's has."""
    with stand.clone(stand.scaled(OTHERS)) as dsn, draining(dsn) as drain:
        lease_and_abandon(dsn, WARM_UP)
        drain()
        lease_and_abandon(dsn, size)
        settle()
        began = time.perf_counter()
        drain()
        took = time.perf_counter() - began
        left = run(dsn, "SELECT count(*) FROM job_queue WHERE status = 'LEASED'")[0][0]
        if left:
            raise RuntimeError(f"{left} leases left")
        return took


@contextmanager
def reaper(dsn: str, **given: int) -> Iterator[Drain]:
    """Ticks at the default settings, or at those given, without the publishing."""
    database = Database(dsn)
    settings = Settings.load({"database_url": dsn} | given)

    def drain() -> None:
        while run_tick(database, settings, lambda _: True, quiet_seconds=0).processed:
            pass

    yield drain
    database.close()


@contextmanager
def at_once(dsn: str, text: str) -> Iterator[Drain]:
    """One text of set statements, for all leases."""
    connection = connect(dsn)
    with connection.cursor() as cursor:
        yield lambda: cursor.execute(text)
    connection.close()


@contextmanager
def row_by_row(dsn: str) -> Iterator[Drain]:
    """The original's shape: lock a batch of 16, then a savepoint and single statements per row."""
    connection = connect(dsn)
    connection.autocommit = False
    pick, *statements = [part.strip() for part in ROW.split("-- next")]

    def drain() -> None:
        rows = None
        while rows is None or rows:
            cursor.execute(pick)
            rows = cursor.fetchall()
            for job_id, run_number, attempt, is_last in rows:
                values = {"id": job_id, "run": run_number, "attempt": attempt, "last": is_last}
                cursor.execute("SAVEPOINT one")
                for statement in statements:
                    cursor.execute(statement, values)
                cursor.execute("RELEASE SAVEPOINT one")
            connection.commit()

    with connection.cursor() as cursor:
        yield drain
    connection.close()
