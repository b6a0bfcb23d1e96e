"""P2: an idle tick, by EXPLAIN in the database, with few and with many finished rows."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.stand import Stand, connect
from benchmarks.suite import Result, at_most
from reaper import sql
from reaper.config import Settings
from reaper.reap import run_tick
from reaper.store import Database

FEW, MANY = 5_000, 5_000_000
TICKS = 25


class _Explained(Database):
    """Explains each statement in a transaction that is undone, before it is run."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.ms = 0.0
        self.buffers = 0
        self._explain = connect(dsn)

    def execute(
        self, name: str, parameters: Mapping[str, Any] | None = None, **options: Any
    ) -> list[tuple[Any, ...]]:
        """Add up planning, execution and the buffers of both."""
        with self._explain.cursor() as cursor:
            cursor.execute(
                "BEGIN; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql.load(name), parameters
            )
            (plan,) = cursor.fetchone()[0]
            cursor.execute("ROLLBACK")
        self.ms += plan["Planning Time"] + plan["Execution Time"]
        for node in (plan["Plan"], plan.get("Planning", {})):
            self.buffers += node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0)
        return super().execute(name, parameters, **options)


def measure(stand: Stand) -> Iterator[Result]:
    """Time and buffers of all statements of an idle tick, medians."""
    few, many = (_idle(stand, stand.scaled(rows)) for rows in (FEW, MANY))
    detail = {"5 k": few, "5 M": many}
    yield at_most("P2", "idle tick, 5 M finished rows", many["ms"], 1, "ms", **detail)
    yield at_most("P2", "time, 5 M / 5 k finished rows", many["ms"] / few["ms"], 1.2, "ratio")
    buffers = many["buffers"] / few["buffers"]
    yield at_most("P2", "buffers, 5 M / 5 k finished rows", buffers, 1.2, "ratio")


def _idle(stand: Stand, rows: int) -> dict[str, float]:
    with stand.clone(rows) as dsn:
        settings = Settings.load({"database_url": dsn})
        database = _Explained(dsn)
        times, buffers = [], []
        for _ in range(TICKS):
            database.ms, database.buffers = 0.0, 0
            run_tick(database, settings, lambda _: True, quiet_seconds=0)
            times.append(database.ms)
            buffers.append(database.buffers)
        database.close()
        return {
            "ms": round(statistics.median(times), 4),
            "buffers": statistics.median(buffers),
        }
