"""`make bench-peers`: print what each takes and writes per job, medians of interleaved rounds.

The peers run in a virtual environment of their own: `--python` is its interpreter.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drain import reaper
from benchmarks.stand import Stand, lease_and_abandon, run
from benchmarks.suite import say
from tests.harness import databases

COUNT = 10_000
PEERS = ("oban", "procrastinate", "pgqueuer", "chancy")
ROOT = Path(__file__).parents[2]

WRITTEN = """
SELECT pg_stat_force_next_flush(), sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del),
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')
FROM pg_stat_user_tables
"""


@dataclass(frozen=True)
class Taking:
    """One round of one of them: per job, in microseconds, rows and bytes."""

    micros: float
    inserted: float
    updated: float
    deleted: float
    wal_bytes: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--python", required=True, type=Path, help="of the peers' environment")
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    given = parser.parse_args()
    python = given.python.absolute()
    with Stand(quick=given.quick) as stand:
        takers = {"reaper": lambda: _reaper(stand)}
        takers |= {name: lambda name=name: _peer(stand, python, name) for name in PEERS}
        rounds: dict[str, list[Taking]] = {name: [] for name in takers}
        for number in range(stand.rounds):
            for name in list(takers) if number % 2 == 0 else reversed(takers):
                rounds[name].append(takers[name]())
                say(f"  round {number + 1}: {name}: {rounds[name][-1].micros:.0f} us a job")
    print(_table(rounds))


def _reaper(stand: Stand) -> Taking:
    count = stand.scaled(COUNT)

    def take() -> float:
        with reaper(dsn) as drain:
            return _timed(drain)

    with stand.clone() as dsn:
        lease_and_abandon(dsn, count)
        return _watched(dsn, count, take)


def _peer(stand: Stand, python: Path, name: str) -> Taking:
    count = stand.scaled(COUNT)

    def call(what: str, dsn: str) -> str:
        module = "benchmarks.peers.take_back"
        command = [str(python), "-m", module, name, what, dsn, str(count)]
        return subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def take() -> float:
        answer = json.loads(call("take", dsn))
        if answer["taken"] != count:
            raise RuntimeError(f"{name} took back {answer['taken']} of {count}")
        return float(answer["seconds"])

    with databases.fresh(stand.dsn) as dsn:
        call("fill", dsn)
        return _watched(dsn, count, take)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _watched(dsn: str, count: int, take: Callable[[], float]) -> Taking:
    """Return what it took and wrote, by PostgreSQL's own counters."""
    before = run(dsn, WRITTEN)[0][1:]
    seconds = take()
    run(dsn, "SELECT pg_sleep(1.1)")  # a session's counters arrive within a second of its end
    after = run(dsn, WRITTEN)[0][1:]
    written = [float(b - a) / count for a, b in zip(before, after, strict=True)]
    return Taking(1e6 * seconds / count, *written)


def _table(rounds: dict[str, list[Taking]]) -> str:
    lines = [
        "| | us a job | beside reaper | rows inserted | updated | deleted | WAL bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, takings in rounds.items():
        pairs = zip(takings, rounds["reaper"], strict=True)
        beside = statistics.median(one.micros / ours.micros for one, ours in pairs)
        micros = statistics.median(one.micros for one in takings)
        last = takings[-1]
        lines.append(
            f"| {name} | {micros:.0f} | {beside:.2f} | {last.inserted:.1f} | {last.updated:.1f} "
            f"| {last.deleted:.1f} | {last.wal_bytes:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
