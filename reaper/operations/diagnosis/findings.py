"""What a check found. No I/O."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How bad it is: fine; works, but look at it; does not do what it promises."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result. `cure` is what to do, None where there is nothing to do."""

    id: str
    severity: Severity
    found: str
    cure: str | None = None


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Severity.OK, found)


def warn(check: str, found: str, cure: str) -> Finding:
    """Works, but a person should look at it."""
    return Finding(check, Severity.WARN, found, cure)


def fail(check: str, found: str, cure: str) -> Finding:
    """Something reaper promises does not happen until a person acts."""
    return Finding(check, Severity.FAIL, found, cure)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity among `findings`."""
    found = {finding.severity for finding in findings}
    return next((s for s in (Severity.FAIL, Severity.WARN) if s in found), Severity.OK)


def listed(names: Iterable[object], most: int = 3) -> str:
    """Return a few of the names on one line, and how many more there are."""
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
