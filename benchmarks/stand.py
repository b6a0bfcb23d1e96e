"""The stand: servers, databases cloned from filled ones, rows, real Celery processes."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg2

from benchmarks.suite import ROUNDS
from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.harness import databases
from tests.harness.processes import Processes

SERVER = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "track_commit_timestamp": "on",
    "max_connections": "60",
}
"""A server of moderate size that flushes each commit. No checkpoint and no vacuum falls into one
variant's time and not into another's."""


class Stand(AbstractContextManager["Stand"]):
    """Embedded servers, or those of REAPER_BENCH_DATABASE_URL and REAPER_BENCH_BROKER_URL.

    Args:
        quick: one round of a hundredth of everything: shows that it runs, measures nothing.
    """

    def __init__(self, *, quick: bool = False) -> None:
        self._quick = quick
        self.rounds = 1 if quick else ROUNDS
        self._stack = ExitStack()
        self._templates: dict[int, str] = {}

    def __enter__(self) -> Self:
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.dsn = os.environ.get("REAPER_BENCH_DATABASE_URL") or (
            self._stack.enter_context(EmbeddedPostgres(settings=SERVER)).dsn
        )
        self.broker_url = os.environ.get("REAPER_BENCH_BROKER_URL") or (
            self._stack.enter_context(EmbeddedValkey(persistence=False)).url
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def scaled(self, full: int) -> int:
        """Return a number of rows, or a hundredth of it where it is to be quick."""
        return max(full // 100, 10) if self._quick else full

    def template(self, other_rows: int) -> str:
        """Return the name of a database with the schema and `other_rows` finished jobs."""
        if other_rows not in self._templates:
            dsn = self._stack.enter_context(databases.fresh(self.dsn))
            databases.prepare(dsn)
            fill_finished(dsn, other_rows)
            self._templates[other_rows] = psycopg2.extensions.parse_dsn(dsn)["dbname"]
        return self._templates[other_rows]

    @contextmanager
    def clone(self, other_rows: int = 0) -> Iterator[str]:
        """A database of its own, with `other_rows` finished jobs in it."""
        with databases.fresh(self.dsn, self.template(other_rows)) as dsn:
            yield dsn

    @contextmanager
    def processes(self, dsn: str) -> Iterator[Processes]:
        """Start real processes on a database and the broker; ended at the end."""
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        processes = Processes(directory, dsn, self.broker_url)
        try:
            yield processes
        finally:
            processes.end()


def connect(dsn: str) -> Any:
    """Open a connection in autocommit mode."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection


def run(dsn: str, *texts: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Run statements on a connection of their own; return the rows of the last."""
    connection = connect(dsn)
    try:
        with connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def fill_finished(dsn: str, count: int) -> None:
    """Insert `count` succeeded jobs, as a queue that has been in use holds them."""
    run(
        dsn,
        "INSERT INTO job_definitions (job_type) SELECT 'type_' || n FROM generate_series(0, 9) AS n"
        " ON CONFLICT DO NOTHING",
    )
    run(
        dsn,
        "INSERT INTO job_queue (id, job_type, payload, status, attempt, max_attempts, next_run_at,"
        " started_at, finished_at, created_at, updated_at)"
        " SELECT gen_random_uuid(), 'type_' || n %% 10, '{}', 'SUCCEEDED', 1, 8,"
        " now() - interval '2 days', now() - interval '2 days', now() - interval '1 day',"
        " now() - interval '2 days', now() - interval '1 day'"
        " FROM generate_series(1, %(count)s) AS n",
        "VACUUM ANALYZE job_queue",
        "CHECKPOINT",
        parameters={"count": count},
    )


def lease_and_abandon(dsn: str, count: int, *, exhausted_each: int = 5) -> None:
    """Insert `count` expired leases with attempts; one in `exhausted_each` has none left."""
    run(
        dsn,
        """
        WITH queued AS (
            INSERT INTO job_queue (id, job_type, organization_id, payload, status, attempt,
                max_attempts, next_run_at, lease_expires_at, last_heartbeat_at, worker_id,
                started_at, stage)
            SELECT gen_random_uuid(), 'type_' || n %% 10, gen_random_uuid(),
                jsonb_build_object('number', n, 'text', repeat('x', 100)), 'LEASED', 2,
                CASE WHEN n %% %(each)s = 0 THEN 2 ELSE 8 END, now() - interval '1 hour',
                now() - interval '10 minutes' + n * interval '1 millisecond',
                now() - interval '20 minutes', 'worker-' || n %% 50, now() - interval '1 hour',
                'queued'
            FROM generate_series(1, %(count)s) AS n
            RETURNING id, worker_id
        )
        INSERT INTO job_attempts (job_id, run_number, attempt, worker_id, leased_at, started_at)
        SELECT id, 1, 2, worker_id, now() - interval '1 hour', now() - interval '1 hour' FROM queued
        """,
        "ANALYZE job_queue, job_attempts",
        "CHECKPOINT",
        parameters={"count": count, "each": exhausted_each},
    )


def settle() -> None:
    """Have on the disk what was written so far: else it is written in the time of what follows."""
    os.sync()
    time.sleep(1)


def wait_until(dsn: str, question: str, seconds: float = 300.0, every: float = 0.01) -> float:
    """Wait until `question` answers true; return the time of the clock then."""
    connection = connect(dsn)
    deadline = time.monotonic() + seconds
    try:
        with connection.cursor() as cursor:
            while True:
                cursor.execute(question)
                if cursor.fetchone()[0]:
                    return time.monotonic()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not within {seconds} s: {question}")
                time.sleep(every)
    finally:
        connection.close()
