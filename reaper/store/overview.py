"""The statements behind `status` and the metrics: one function each, named like its file.

They read roll-ups and small indexes, never history, and change nothing.
"""

from dataclasses import dataclass

from reaper.store.connection import Database
from reaper.store.ledger import THROTTLE_AFTER
from reaper.store.reaping import UNHEARD_SECONDS


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """Leases now. `deferred` rows are poison, set aside; they are not among the expired."""

    live: int
    expired: int
    oldest_expired_seconds: float | None
    deferred: int


@dataclass(frozen=True, slots=True)
class LastTick:
    """The last tick; ages in seconds by the database's clock, None before the first one."""

    started_seconds_ago: float | None
    finished_seconds_ago: float | None
    released: int
    retried: int
    dead_lettered: int
    skipped: int
    deferred: int
    ticks: int


@dataclass(frozen=True, slots=True)
class RecentDeaths:
    """Dead letters of one type."""

    job_type: str
    last_hour: int
    last_day: int


@dataclass(frozen=True, slots=True)
class HookCount:
    """Ledger rows of one type in one state; `oldest_seconds` for pending ones that may run now."""

    job_type: str
    state: str
    count: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class TickTotal:
    """Leases of one type ever reaped in one way."""

    job_type: str
    disposition: str
    total: int


def count_leases(database: Database) -> LeaseCounts:
    """Return how many leases are live, expired and set aside."""
    return LeaseCounts(*database.execute("count_leases")[0])


def read_tick(database: Database) -> LastTick:
    """Return the last tick."""
    return LastTick(*database.execute("read_tick")[0])


def count_recent_dead_letters(database: Database) -> list[RecentDeaths]:
    """Return the dead letters of the last hour and day by type, the most first."""
    return [RecentDeaths(*row) for row in database.execute("count_recent_dead_letters")]


def count_hooks_by_type(database: Database) -> list[HookCount]:
    """Return the ledger's rows by type and state, without the completed ones."""
    rows = database.execute("count_hooks_by_type", {"unheard_seconds": UNHEARD_SECONDS})
    return [HookCount(*row) for row in rows]


def list_throttled_types(database: Database) -> dict[str, int]:
    """Return the throttled job types with their timeouts in a row."""
    return dict(database.execute("list_throttled_types", {"throttle_after": THROTTLE_AFTER}))


def read_tick_totals(database: Database) -> list[TickTotal]:
    """Return how many leases were ever reaped, by type and disposition."""
    return [TickTotal(*row) for row in database.execute("read_tick_totals")]
