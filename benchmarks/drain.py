"""P1: the drain of expired leases, beside the floor, a bare UPDATE and the row-by-row shape."""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stand import Stand, connect, lease_and_abandon, run
from benchmarks.suite import Result, at_least, at_most, interleaved, ratio, rounded
from reaper.config import Settings
from reaper.reap import run_tick
from reaper.store import Database

OTHERS = 500_000
SIZES = (10_000, 100_000)
ROW_BY_ROW = 2_000
"""Rows of the row-by-row shape, timed per row: 10,000 of them each round would take minutes."""

FLOOR = Path(__file__).with_name("floor.sql").read_text("utf-8")
ROW = Path(__file__).with_name("row_by_row.sql").read_text("utf-8")


def measure(stand: Stand) -> Iterator[Result]:
    """Drain 10 k and 100 k leases among 500 k finished jobs, 1 in 5 exhausted."""
    rows = stand.scaled(ROW_BY_ROW)
    for full in SIZES:
        size = stand.scaled(full)
        figures = interleaved(
            {
                "reaper": lambda size=size: _on_leases(stand, size, reap),
                "floor": lambda size=size: _on_leases(stand, size, _floor),
                "bare": lambda size=size: _on_leases(stand, size, _bare),
                "rows": lambda size=size: _on_leases(stand, rows, _row_by_row) * size / rows,
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


def _on_leases(stand: Stand, size: int, drain) -> float:  # noqa: ANN001 -- one of those below
    with stand.clone(stand.scaled(OTHERS)) as dsn:
        lease_and_abandon(dsn, size)
        began = time.perf_counter()
        drain(dsn)
        seconds = time.perf_counter() - began
        left = run(dsn, "SELECT count(*) FROM job_queue WHERE status = 'LEASED'")[0][0]
        if left:
            raise RuntimeError(f"{left} leases left")
        return seconds


def reap(dsn: str) -> None:
    """Ticks at the default settings, without the publishing."""
    database = Database(dsn)
    settings = Settings.load({"database_url": dsn})
    while run_tick(database, settings, lambda _: True, quiet_seconds=0).processed:
        pass
    database.close()


def _floor(dsn: str) -> None:
    connection = connect(dsn)
    with connection.cursor() as cursor:
        cursor.execute(FLOOR)
    connection.close()


def _bare(dsn: str) -> None:
    run(
        dsn,
        "UPDATE job_queue SET status = 'PENDING', lease_expires_at = NULL, worker_id = NULL,"
        " last_heartbeat_at = NULL, next_run_at = now() + interval '30 seconds', updated_at = now()"
        " WHERE status = 'LEASED' AND lease_expires_at < now()",
    )


def _row_by_row(dsn: str) -> None:
    """The original's shape: lock a batch of 16, then a savepoint and single statements per row."""
    connection = connect(dsn)
    connection.autocommit = False
    pick, *statements = [part.strip() for part in ROW.split("-- next")]
    with connection.cursor() as cursor:
        while True:
            cursor.execute(pick)
            rows = cursor.fetchall()
            for job_id, run_number, attempt, is_last in rows:
                values = {"id": job_id, "run": run_number, "attempt": attempt, "last": is_last}
                cursor.execute("SAVEPOINT one")
                for statement in statements:
                    cursor.execute(statement, values)
                cursor.execute("RELEASE SAVEPOINT one")
            connection.commit()
            if not rows:
                break
    connection.close()
