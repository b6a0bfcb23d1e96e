"""Fixtures: servers for the whole run of one test process, a fresh database for each test."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import redis

from reaper.config import Settings
from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.store import Database
from tests.harness import databases
from tests.harness.processes import Processes

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""A crash of the server's process loses nothing with these; only a crash of the machine would."""

for _name in [name for name in os.environ if name.startswith(("REAPER_", "JOBS_"))]:
    if not _name.startswith("REAPER_TEST_"):
        del os.environ[_name]  # a developer's own settings must not steer the tests


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """PostgreSQL 18 of this test process."""
    with EmbeddedPostgres(settings=FAST | {"max_connections": "200"}, tcp_port=0) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedValkey]:
    """Valkey of this test process."""
    with EmbeddedValkey(persistence=False) as server:
        yield server


@pytest.fixture(scope="session")
def admin_dsn(request: pytest.FixtureRequest) -> str:
    """URL of a role that may create databases: REAPER_TEST_DATABASE_URL or the embedded server."""
    given = os.environ.get("REAPER_TEST_DATABASE_URL")
    return given or request.getfixturevalue("postgres").dsn


@pytest.fixture(scope="session")
def template(admin_dsn: str) -> Iterator[str]:
    """Name of a migrated database that is cloned for each test."""
    with databases.fresh(admin_dsn) as dsn:
        databases.prepare(dsn)
        yield psycopg2.extensions.parse_dsn(dsn)["dbname"]


@pytest.fixture
def dsn(admin_dsn: str, template: str) -> Iterator[str]:
    """URL of a fresh, migrated database with job tables."""
    with databases.fresh(admin_dsn, template) as url:
        yield url


@pytest.fixture
def empty_dsn(admin_dsn: str) -> Iterator[str]:
    """URL of a fresh database with nothing in it."""
    with databases.fresh(admin_dsn) as url:
        yield url


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """The store's connection to this test's database."""
    database = Database(dsn)
    yield database
    database.close()


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[..., Any]]:
    """Open a psycopg2 connection in autocommit mode, to this test's database or a given one."""
    opened: list[Any] = []

    def open_connection(url: str | None = None) -> Any:
        connection = psycopg2.connect(url or dsn)
        connection.autocommit = True
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        connection.close()


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty broker: REAPER_TEST_BROKER_URL's database or the embedded server's."""
    given = os.environ.get("REAPER_TEST_BROKER_URL")
    url = given or request.getfixturevalue("valkey").url
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A migrated server for one test, to be restarted and stopped."""
    with EmbeddedPostgres(settings={"full_page_writes": "off"}, tcp_port=0) as server:
        databases.prepare(server.dsn)
        yield server


@pytest.fixture
def own_valkey() -> Iterator[EmbeddedValkey]:
    """A broker for one test, to be paused, flushed and restarted."""
    with EmbeddedValkey(persistence=False) as server:
        yield server
        server.resume()


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Callable[..., Settings]:
    """Make Settings for this test's servers; keywords are field names."""

    def make(**values: Any) -> Settings:
        if "database_url" not in values:
            values["database_url"] = request.getfixturevalue("dsn")
        if "broker_url" not in values:
            values["broker_url"] = "memory://"
        return Settings.load(values)

    return make


@pytest.fixture
def processes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Processes]:
    """Start real processes on this test's servers; all are ended with it."""
    directory = tmp_path / f"run-{uuid4().hex[:6]}"
    directory.mkdir()
    started = Processes(
        directory, request.getfixturevalue("dsn"), request.getfixturevalue("broker_url")
    )
    yield started
    started.end()
    sys.stdout.write(started.last_words)  # shown where the test failed
