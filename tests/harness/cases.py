"""The scenarios of docs/reliability.md and their tests: `python -m tests.harness.cases`.

A test says in its docstring which scenario it holds ("Case 23: ..."). This prints the table.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

TITLES = {
    1: "a job finished in another transaction, not yet committed",
    2: "a batch of jobs with 1 to 25 attempts",
    3: "a batch's worth of poison and one healthy younger lease",
    4: "a lease renewed in time, or not yet expired",
    5: "a zombie reports success after its lease",
    6: "four reaps at once over 1,000 exhausted leases",
    7: "the last attempt fails as its lease expires",
    8: "odd job types, and triggers that raise",
    9: "payloads of every JSON shape, size and depth",
    10: "rows that can never expire",
    11: "a requeued dead letter dies again",
    12: "a start commits between the reap's snapshot and its lock",
    13: "somebody holds the oldest lease's row lock",
    14: "millions of finished rows",
    15: "a snapshot held open while leases churn",
    16: "a reap worker's child killed in mid-transaction",
    17: "PostgreSQL crashes in a batch; all connections terminated",
    18: "pgbouncer in transaction mode",
    19: "a host clock two hours off",
    20: "SIGKILL between COMMIT and publish",
    21: "Redis flushed, or restarted empty",
    22: "the same message twice",
    23: "a hook that sleeps past its limit",
    24: "a hook no soft limit reaches",
    25: "a hook that kills its own process",
    26: "errors with strange or enormous text",
    27: "sys.exit, KeyboardInterrupt and their like",
    28: "a handler module that does not import",
    29: "other pools, -c 32, --autoscale",
    30: "SIGTERM with eight hooks running and 500 waiting",
    31: "SIGKILL of a hook worker with eight running",
    32: "Redis paused or black-holed during publish",
    33: "Redis away for a minute; five restarts in a minute",
    34: "a megabyte of payload in 1,000 dead letters",
    35: "the job row is deleted before its hook",
    36: "three beats and three workers",
    37: "300 reap messages waiting",
    38: "beat killed; broken schedule files",
    39: "bad settings and unreachable servers",
    40: "no schema, an older or a newer one",
    41: "a read-only database",
}


def held_by() -> dict[int, list[str]]:
    """Return the tests of each case, as `path::name` below tests/."""
    found: dict[int, list[str]] = {number: [] for number in TITLES}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, text in _docstrings(path):
            for number in _numbers(text):
                found[number].append(f"{path.relative_to(TESTS)}::{name}")
    return found


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| case | scenario | held by |", "| --- | --- | --- |"]
    for number, tests in held_by().items():
        links = "<br>".join(f"`{test}`" for test in tests)
        lines.append(f"| {number} | {TITLES[number]} | {links} |")
    return "\n".join(lines)


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, ast.get_docstring(node) or ""


def _numbers(text: str) -> set[int]:
    lists = re.findall(r"\bcases? ((?:\d+(?:, | and )?)+)", text, re.IGNORECASE)
    return {int(n) for found in lists for n in re.findall(r"\d+", found)} & set(TITLES)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
