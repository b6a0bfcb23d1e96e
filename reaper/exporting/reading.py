"""What one scrape reads, from the database and the broker, and what it says when one is away."""

from dataclasses import dataclass
from typing import TypeVar

from celery import Celery

from reaper.config import Settings
from reaper.errors import ReaperError
from reaper.operations.overview import DatabaseOverview, read_database
from reaper.store import Database, dead_letters, overview, owed_hooks
from reaper.store.overview import TickTotal
from reaper.store.owed_hooks import HookTotal
from reaper.watching.connection import broker_connection
from reaper.watching.patience import Question
from reaper.watching.queues import queue_lengths

PATIENCE_SECONDS = 4.0
"""For each server: both are asked at once, and Prometheus gives up after 10 s by default."""

FRESH_SECONDS = 0.5
"""Scrapes closer together than this share one reading."""

STATEMENT_TIMEOUT_MS = 3_000
"""Below the patience, so that the server ends what nobody waits for any more."""

CONNECT_SECONDS = 2

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class DatabaseReading:
    """What the database says."""

    seen: DatabaseOverview
    job_types: list[str]
    tick_totals: list[TickTotal]
    hook_totals: list[HookTotal]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scrape read; an error stands where a server could not be asked."""

    database: DatabaseReading | ReaperError
    queues: dict[str, int] | ReaperError
    interval_seconds: float


class Reader:
    """Reads for any number of scrapes at once; each server is asked by one thread at a time."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._interval_seconds = settings.interval_seconds
        self._connection = Database(
            settings.require_database_url(),
            application_name="reaper exporter",
            connect_timeout_seconds=CONNECT_SECONDS,
            statement_timeout_ms=STATEMENT_TIMEOUT_MS,
        )
        self._app = app
        self._database = Question(
            self._read_database,
            "PostgreSQL",
            patience_seconds=PATIENCE_SECONDS,
            fresh_seconds=FRESH_SECONDS,
        )
        self._broker = Question(
            self._read_broker,
            "the broker",
            patience_seconds=PATIENCE_SECONDS,
            fresh_seconds=FRESH_SECONDS,
        )

    def read(self) -> Reading:
        """Return what both say now, within the patience. Never raises a ReaperError."""
        self._database.begin()
        self._broker.begin()
        database = _or_error(self._database)
        queues = _or_error(self._broker)
        return Reading(database, queues, self._interval_seconds)

    def _read_database(self) -> DatabaseReading:
        return DatabaseReading(
            seen=read_database(self._connection),
            job_types=dead_letters.list_job_types(self._connection),
            tick_totals=overview.read_tick_totals(self._connection),
            hook_totals=owed_hooks.read_hook_totals(self._connection),
        )

    def _read_broker(self) -> dict[str, int]:
        with broker_connection(self._app) as connection:
            return queue_lengths(connection)


def _or_error(question: Question[Answer]) -> Answer | ReaperError:
    try:
        return question.answer()
    except ReaperError as error:
        return error
