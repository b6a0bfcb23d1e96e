"""`make bench`: run the measurements, print the table, write benchmarks/results.json.

Exit status 1 if a target was missed. `--only P1,P2` runs some; results.json then keeps the others.
`--quick` does one round of a hundredth of everything, to show that it runs: it writes no results
unless `--results` says where.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.stand import Stand, run
from benchmarks.suite import Result, say

MEASUREMENTS = {
    "P1": "drain",
    "P2": "idle",
    "P3": "fan_out",
    "P4": "throughput",
    "P5": "slots",
    "P6": "latency",
    "P7": "lost_worker",
    "P8": "memory",
    "P9": "held_snapshot",
}

RESULTS = Path(__file__).with_name("results.json")


def main() -> int:
    """Measure and report; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", help="ids separated by commas, such as P1,P2")
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument("--results", type=Path, help=f"where to write, default {RESULTS}")
    given = parser.parse_args()
    wanted = _wanted(given.only, parser)
    path = given.results or (None if given.quick else RESULTS)
    results: list[Result] = []
    with Stand(quick=given.quick) as stand:
        say(_machine(stand))
        for name in wanted:
            began = time.monotonic()
            module = importlib.import_module(f"benchmarks.{MEASUREMENTS[name]}")
            say(str(module.__doc__))
            results += module.measure(stand)
            if path:
                _write(path, results)  # each when it is known: the whole takes half an hour
            say(f"{name}: took {time.monotonic() - began:.0f} s")
    print(_table(results))
    return 1 if any(result.ok is False for result in results) else 0


def _wanted(only: str | None, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip().upper() for name in only.split(",")] if only else list(MEASUREMENTS)
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there is {', '.join(MEASUREMENTS)}")
    return names


def _write(path: Path, results: list[Result]) -> None:
    kept = json.loads(path.read_text("utf-8")) if path.exists() else []
    measured = {result.id for result in results}
    kept = [entry for entry in kept if entry["id"] not in measured]
    entries = sorted([*kept, *(r.as_json() for r in results)], key=lambda entry: entry["id"])
    path.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")


def _table(results: list[Result]) -> str:
    lines = ["| | what | measured | target | |", "|---|---|---|---|---|"]
    for r in results:
        verdict = {True: "ok", False: "MISSED", None: ""}[r.ok]
        lines.append(f"| {r.id} | {r.what} | {r.value:.3g} {r.unit} | {r.target} | {verdict} |")
    return "\n".join(lines)


def _machine(stand: Stand) -> str:
    server = run(stand.dsn, "SHOW server_version")[0][0]
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, "
        f"PostgreSQL {server}, {os.cpu_count()} cores of {platform.machine()}, load {load}"
    )


if __name__ == "__main__":
    sys.exit(main())
