"""`python -m tests.chaos --seconds 60 --seed 1`: the run and its report.

1. Start servers, the crew (beat, two reap workers, two hook workers) and two lease holders.
2. Strike with a random fault every two or three seconds until the time is up.
3. Stop the load and let things settle: the ledger's own delays are waited for, nothing is aged.
4. Ask the database for every promise; exit status 1 unless every answer is 0.

The faults are drawn from the seed; what they meet depends on the machine's timing.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg2

from reaper import leases
from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.store import Database
from tests.chaos import proof
from tests.chaos.crew import Crew
from tests.chaos.disorder import Disorder
from tests.chaos.load import TYPES, Load
from tests.harness import databases
from tests.harness.processes import Processes

SETTLE_SECONDS = 240.0
"""Two unheard doorbells (twice 30 s), a throttled type's probes (30 s each), the last backoffs."""

MANY = 50
"""Jobs below which a run proves nothing: two lease holders enqueue about twenty a second."""

EFFECTS = """
CREATE TABLE chaos_effects (
    job_id text NOT NULL,
    run_number integer NOT NULL,
    attempt integer NOT NULL,
    job_type text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON chaos_effects (job_id)
"""


def main() -> int:
    """Run, report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the disorder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing is left running
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
        report = _run(Path(directory), options.seconds, options.seed)
    for words in report.pop("last words"):
        print(words, file=sys.stderr)  # noqa: T201
    broken = {name: count for name, count in report["must be 0"].items() if count}
    print(json.dumps(report, indent=2) if options.json else _page(report))  # noqa: T201
    if broken:
        print(f"chaos: BROKEN: {broken}", file=sys.stderr)  # noqa: T201
    return 1 if broken else 0


def _run(directory: Path, seconds: float, seed: int) -> dict[str, Any]:
    locks = directory / "locks"
    locks.mkdir()
    settings = {"max_connections": "100", "full_page_writes": "off"}
    with (
        EmbeddedPostgres(settings=settings) as postgres,
        EmbeddedValkey() as valkey,
    ):
        _prepare(postgres.dsn)
        processes = Processes(directory, postgres.dsn, valkey.url)
        try:
            crew = Crew(processes, seed, CHAOS_LOCKS=locks)
            disorder = Disorder(seed, crew, postgres, valkey)
            loads = [Load(postgres.dsn, seed * 100 + n) for n in range(2)]
            _disturb(crew, disorder, loads, seconds)
            took = _settle(crew, postgres.dsn)
            crew.end()
            return _report(postgres.dsn, locks, loads, disorder, crew) | {
                "seed": seed,
                "seconds": seconds,
                "settled after seconds": round(took, 1),
                "last words": [member.last_words for member in crew.gave_up],
            }
        finally:
            processes.end()


def _prepare(dsn: str) -> None:
    databases.prepare(dsn)
    databases.run(dsn, EFFECTS)
    database = Database(dsn)
    for job_type in TYPES:
        leases.define_job_type(database, job_type, max_attempts=3)
    database.close()


def _disturb(crew: Crew, disorder: Disorder, loads: list[Load], seconds: float) -> None:
    crew.watch(4)  # everybody is up once
    for load in loads:
        load.start()
    pauses = random.Random(disorder.random.random())
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        disorder.strike()
        crew.watch(1.5 + pauses.random() * 2)
    for load in loads:
        load.finish()


def _settle(crew: Crew, dsn: str) -> float:
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS:
        crew.watch(0.5)
        connection = psycopg2.connect(dsn)
        left = proof.unsettled(connection)
        connection.close()
        if not left:
            break
    return time.monotonic() - began


def _report(
    dsn: str, locks: Path, loads: list[Load], disorder: Disorder, crew: Crew
) -> dict[str, Any]:
    connection = psycopg2.connect(dsn)
    try:
        known = [job_id for load in loads for job_id in load.known]
        return {
            "must be 0": proof.answers(connection, known, locks)
            | {
                "processes that gave up by themselves": len(crew.gave_up),
                "lease holders that broke down": sum(load.is_broken for load in loads),
                "runs in which nothing died": int(not disorder.kills or len(known) < MANY),
            },
            **proof.figures(connection),
            "lease holders": dict(sum((load.counts for load in loads), Counter())),
            "faults": dict(disorder.counts.most_common()),
            "SIGKILLs": disorder.kills,
            "processes started": dict(crew.started),
        }
    finally:
        connection.close()


def _page(report: dict[str, Any]) -> str:
    lines = [f"chaos: {report['seconds']:g} s with seed {report['seed']}"]
    for name, value in report.items():
        if isinstance(value, dict):
            lines += ["", f"{name}:", *(f"  {count:>7}  {what}" for what, count in value.items())]
        elif name not in {"seed", "seconds"}:
            lines += ["", f"{name}: {value}"]
    holds = not any(report["must be 0"].values())
    return "\n".join([*lines, "", f"chaos: {'every promise held' if holds else 'BROKEN'}"])


if __name__ == "__main__":
    sys.exit(main())
