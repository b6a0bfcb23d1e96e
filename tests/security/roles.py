"""Database roles for one test, without any right of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg2
from psycopg2.extensions import make_dsn

from tests.harness.databases import run

PASSWORD = "s3cret-of-the-role"  # noqa: S105 -- of a role that lives as long as its test


@contextmanager
def plain_role(admin_dsn: str) -> Iterator[str]:
    """Name of a role that may log in and nothing else; dropped with all that it owns here."""
    name = f"reaper_test_{uuid4().hex[:12]}"
    run(admin_dsn, f"CREATE ROLE {name} LOGIN NOSUPERUSER PASSWORD '{PASSWORD}'")
    try:
        yield name
    finally:
        run(admin_dsn, f"DROP OWNED BY {name} CASCADE")
        run(admin_dsn, f"DROP ROLE {name}")


def dsn_of(role: str, dsn: str, **more: str) -> str:
    """Return `dsn` for another role, as keywords."""
    given = psycopg2.extensions.parse_dsn(dsn) | {"user": role, "password": PASSWORD} | more
    return str(make_dsn(**given))
