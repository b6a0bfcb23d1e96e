"""Fixtures of the reap's tests: a tick by hand, and PostgreSQL 15 beside the suite's server."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from reaper import reap as reaping
from reaper.config import Settings
from reaper.embedded import EmbeddedPostgres
from reaper.jobs import HookRef, ReapResult
from reaper.store import Database
from tests.conftest import FAST
from tests.harness import databases

POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")

EACH_SERVER = pytest.mark.parametrize("dsn", ["suite", "postgres-15"], indirect=True)
"""Runs a module's tests on the suite's server and on PostgreSQL 15."""


class Tick:
    """Runs one tick and remembers which hooks it rang for."""

    def __init__(self, database: Database, settings: Callable[..., Settings]) -> None:
        self.database = database
        self.settings = settings
        self.rung: list[HookRef] = []
        self.broker_is_up = True

    def __call__(self, *, quiet_seconds: float = 0, **values: Any) -> ReapResult:
        return reaping.run_tick(
            self.database, self.settings(**values), self.publish, quiet_seconds=quiet_seconds
        )

    def publish(self, hooks: Sequence[HookRef]) -> bool:
        if self.broker_is_up:
            self.rung += hooks
        return self.broker_is_up


@pytest.fixture
def tick(database: Database, settings: Callable[..., Settings]) -> Tick:
    """A tick by hand that looks at all leases."""
    return Tick(database, settings)


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[EmbeddedPostgres]:
    """Debian's PostgreSQL 15, of this test process."""
    if not POSTGRES_15.exists():
        pytest.skip(f"no PostgreSQL 15 in {POSTGRES_15}: apt-get install postgresql-15")
    with EmbeddedPostgres(settings=FAST, bin_dir=POSTGRES_15) as server:
        yield server


@pytest.fixture(scope="session")
def template_15(postgres_15: EmbeddedPostgres) -> Iterator[str]:
    """Name of a migrated database on PostgreSQL 15."""
    with databases.fresh(postgres_15.dsn) as dsn:
        databases.prepare(dsn)
        yield psycopg2.extensions.parse_dsn(dsn)["dbname"]


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a fresh, migrated database, on the server the test asks for."""
    if getattr(request, "param", "suite") == "postgres-15":
        server = request.getfixturevalue("postgres_15")
        template = request.getfixturevalue("template_15")
        with databases.fresh(server.dsn, template) as url:
            yield url
    else:
        admin = request.getfixturevalue("admin_dsn")
        template = request.getfixturevalue("template")
        with databases.fresh(admin, template) as url:
            yield url
