"""The numbers of `reaper status` and of the metrics, from the database. Must not import Celery."""

from dataclasses import dataclass

from reaper.store import Database, overview
from reaper.store.overview import HookCount, LastTick, LeaseCounts, RecentDeaths


@dataclass(frozen=True, slots=True)
class DatabaseOverview:
    """What the database says. Read by a few statements: numbers may be milliseconds apart."""

    leases: LeaseCounts
    tick: LastTick
    dead_letters: list[RecentDeaths]
    hooks: list[HookCount]
    throttled: dict[str, int]

    @property
    def oldest_pending_seconds(self) -> float:
        """How long the oldest hook that may run has been owed; 0 where none is."""
        return max((h.oldest_seconds or 0.0 for h in self.hooks), default=0.0)


def read_database(database: Database) -> DatabaseOverview:
    """Return what the database says now.

    Raises:
        StoreError: PostgreSQL refused or is away.
    """
    return DatabaseOverview(
        leases=overview.count_leases(database),
        tick=overview.read_tick(database),
        dead_letters=overview.count_recent_dead_letters(database),
        hooks=overview.count_hooks_by_type(database),
        throttled=overview.list_throttled_types(database),
    )
