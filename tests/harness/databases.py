"""Fresh databases, cloned from a migrated template."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg2

from reaper.store import Database, schema

_EFFECTS = """
CREATE TABLE effects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id text NOT NULL,
    run_number integer NOT NULL,
    attempt integer NOT NULL,
    what text NOT NULL,
    pid integer NOT NULL DEFAULT pg_backend_pid(),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


def prepare(dsn: str) -> None:
    """Make the job tables, the schema `reaper` and the handlers' table in an empty database."""
    database = Database(dsn)
    schema.migrate(database, with_job_tables=True)
    database.close()
    run(dsn, _EFFECTS)


def run(dsn: str, text: str) -> None:
    """Run one statement outside of any transaction."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(text)
    finally:
        connection.close()


def named(dsn: str, database: str) -> str:
    """Return `dsn` with another database's name."""
    return re.sub(r"^(\w+://[^/]*)/[^?]*", rf"\1/{database}", dsn)


@contextmanager
def fresh(admin_dsn: str, template: str = "template0") -> Iterator[str]:
    """A database of its own, dropped at the end even where somebody is still connected."""
    name = f"reaper_test_{uuid4().hex[:12]}"
    run(admin_dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield named(admin_dsn, name)
    finally:
        run(admin_dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def role(dsn: str) -> Iterator[tuple[str, str]]:
    """A login role without any rights, and the URL of `dsn` as it; gone at the end."""
    name = f"reaper_role_{uuid4().hex[:8]}"
    run(dsn, f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
    try:
        yield name, re.sub(r"^(\w+://)[^@/]*@", rf"\g<1>{name}:{name}@", dsn)
    finally:
        run(dsn, f"DROP OWNED BY {name}")
        run(dsn, f"DROP ROLE {name}")
