"""The statements behind `reaper doctor`: one function each, named like its file in reaper/sql.

They change nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reaper.store.connection import Database

ANOMALY_TIMEOUT_MS = 60_000
"""Two of the searches read a whole table: minutes are too long on call, a minute is not."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Rows that no reap can ever move."""

    kind: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A job that was released unstarted again and again."""

    job_id: str
    job_type: str
    run_number: int
    releases: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """A poison row in reaper.deferred."""

    job_id: str
    run_number: int
    attempt: int
    sqlstate: str
    constraint: str | None
    times: int


def explain_expired(database: Database) -> bool:
    """Return whether the planner can find expired leases by an index on their expiry."""
    plan = database.execute("explain_expired")[0][0]
    return any("lease_expires_at" in node.get("Index Cond", "") for node in _nodes(plan[0]["Plan"]))


def list_indexes(database: Database) -> list[tuple[str, str, bool]]:
    """Return (table, index, is_usable) of the queue and the ledger."""
    return [(table, index, usable) for table, index, usable in database.execute("list_indexes")]


def list_missing_rights(
    database: Database, needed: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return those of the `needed` (table, right) that the connected role lacks."""
    parameters = {
        "tables": [table for table, _ in needed],
        "rights": [right for _, right in needed],
    }
    return [(table, right) for table, right in database.execute("list_missing_rights", parameters)]


def read_clock(database: Database) -> tuple[float, bool]:
    """Return the database's time in seconds since 1970, and whether it only answers reads."""
    seconds, is_read_only = database.execute("read_clock")[0]
    return float(seconds), bool(is_read_only)


def find_anomalies(database: Database, *, row_limit: int) -> list[Anomaly]:
    """Return the kinds of rows that no reap can ever move, each counted up to `row_limit`."""
    rows = database.execute(
        "find_anomalies", {"row_limit": row_limit}, statement_timeout_ms=ANOMALY_TIMEOUT_MS
    )
    return [Anomaly(kind, count, tuple(examples)) for kind, count, examples in rows]


def find_released_unstarted(
    database: Database, *, newest: int, releases: int, row_limit: int
) -> list[Released]:
    """Return jobs released unstarted `releases` times or more in their current run."""
    parameters = {"newest": newest, "releases": releases, "row_limit": row_limit}
    return [Released(*row) for row in database.execute("find_released_unstarted", parameters)]


def list_deferred(database: Database, *, row_limit: int) -> list[SetAside]:
    """Return poison rows that were set aside, the most often deferred first."""
    return [SetAside(*row) for row in database.execute("list_deferred", {"row_limit": row_limit})]


def find_shortest_lease(database: Database, *, row_limit: int) -> tuple[str, float] | None:
    """Return the type and length in seconds of the shortest lease held now, None without any."""
    rows = database.execute("find_shortest_lease", {"row_limit": row_limit})
    return (rows[0][0], rows[0][1]) if rows else None


def find_workflow_steps(database: Database) -> bool:
    """Return whether there is a table of workflow steps."""
    return bool(database.execute("find_workflow_steps")[0][0])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
