"""`make bench`: run the measurements, print the table, write benchmarks/results.json.

Exit status 1 if a target was missed. `--only P1,P2` runs some; results.json then keeps the others.
"""

import argparse
import importlib
import json
import platform
import sys
import time
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
    wanted = _wanted(parser.parse_args().only, parser)
    results: list[Result] = []
    with Stand() as stand:
        say(_machine(stand))
        for name in wanted:
            began = time.monotonic()
            say(f"{name}: {importlib.import_module(f'benchmarks.{MEASUREMENTS[name]}').__doc__}")
            module = importlib.import_module(f"benchmarks.{MEASUREMENTS[name]}")
            results += module.measure(stand)
            say(f"{name}: took {time.monotonic() - began:.0f} s")
    _write(results, wanted)
    print(_table(results))
    return 1 if any(result.ok is False for result in results) else 0


def _wanted(only: str | None, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip().upper() for name in only.split(",")] if only else list(MEASUREMENTS)
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there is {', '.join(MEASUREMENTS)}")
    return names


def _write(results: list[Result], wanted: list[str]) -> None:
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    kept = [entry for entry in kept if entry["id"] not in wanted]
    entries = sorted([*kept, *(r.as_json() for r in results)], key=lambda entry: entry["id"])
    RESULTS.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")


def _table(results: list[Result]) -> str:
    lines = ["| | what | measured | target | |", "|---|---|---|---|---|"]
    for r in results:
        verdict = {True: "ok", False: "MISSED", None: ""}[r.ok]
        lines.append(f"| {r.id} | {r.what} | {r.value:.3g} {r.unit} | {r.target} | {verdict} |")
    return "\n".join(lines)


def _machine(stand: Stand) -> str:
    server = run(stand.dsn, "SHOW server_version")[0][0]
    return f"Python {platform.python_version()}, PostgreSQL {server}, {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main())
