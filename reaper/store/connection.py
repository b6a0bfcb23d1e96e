"""One PostgreSQL connection per process: made lazily, after the fork, renewed when broken.

Every statement of reaper is sent in autocommit mode as one simple query with its limits in front
(`SET LOCAL ...; UPDATE ...`): the server makes that one implicit transaction, so a batch costs one
round trip, nothing outlives it, and it works behind pgbouncer in transaction mode.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
from psycopg2 import extensions

from reaper import sql
from reaper.errors import ConfigError, StoreError
from reaper.store.lendable import Lendable
from reaper.store.refusals import READ_ONLY, named, unreachable
from reaper.urls import mask_value

CONNECT_TIMEOUT_SECONDS = 3
"""libpq's limit for one address; its smallest useful value is 2."""

STATEMENT_TIMEOUT_MS = 15_000
"""Longer than any statement of reaper takes on a healthy server, shorter than the reap's limit."""

LOCK_TIMEOUT_MS = 5_000
"""The reap skips locked rows; this bounds waits on unique keys and on DDL."""

_PREAMBLE = (
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    "SET LOCAL statement_timeout = %(statement_timeout_ms)s;"
    "SET LOCAL lock_timeout = %(lock_timeout_ms)s;"
    "SET CONSTRAINTS ALL IMMEDIATE;"
)

_BY_INDEX = frozenset({"reap_batch"})
"""Statements that look many rows up by their keys in tables that grow. The planner takes that for
dearer than it is: it would rather read a whole table of attempts for each batch of leases."""

Row = tuple[Any, ...]


class Database:
    """A process's connection to PostgreSQL.

    Safe to share between threads of a process only one at a time. After a fork the child opens a
    connection of its own: the inherited one is dropped without a word to the server.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application_name: str = "reaper",
        connect_timeout_seconds: int = CONNECT_TIMEOUT_SECONDS,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    ) -> None:
        """Remember where to connect; nothing is opened yet.

        Raises:
            ConfigError: `dsn` is neither a URL nor a DSN that libpq can read.
        """
        try:
            given = extensions.parse_dsn(dsn)
        except psycopg2.ProgrammingError:
            raise ConfigError(
                f"REAPER_DATABASE_URL={mask_value(dsn)!r} is not allowed: libpq cannot read it; "
                "write postgresql://user@host:5432/name or host=... dbname=..."
            ) from None
        self._keywords: dict[str, Any] = {
            "connect_timeout": connect_timeout_seconds,
            "application_name": application_name,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        } | given
        # psycopg2 would take the database's own: what that lacks would fail in Python.
        self._keywords["client_encoding"] = "UTF8"
        self._statement_timeout_ms = statement_timeout_ms
        self._connection: Lendable | None = None
        self._pid = 0

    @classmethod
    def borrow(cls, connection: Any) -> "Database":
        """Wrap a psycopg2 connection of the caller's: its transaction, its commit, no reconnect."""
        return _Borrowed(connection)

    def execute(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        statement_timeout_ms: int | None = None,
        repeatable: bool = True,
    ) -> list[Row]:
        """Run statement `name` in a transaction of its own and return its rows.

        One round trip. Where the connection proves broken it is renewed once; the statement is
        then sent again if it is `repeatable`, that is, where running it twice does no harm.

        Raises:
            StoreError: PostgreSQL refused it or cannot be reached.
            SchemaError: a table, column or type is missing.
        """
        text = _PREAMBLE + planner_settings(name) + sql.load(name)
        timeout_ms = statement_timeout_ms or self._statement_timeout_ms
        values = {**limits(timeout_ms), **(parameters or {})}
        try:
            return self._run(text, values)
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            if not self._was_broken() or not repeatable:
                raise named(error) from None
        except psycopg2.Error as error:
            raise self._refused(error) from None
        try:
            return self._run(text, values)
        except psycopg2.Error as error:
            self._was_broken()
            raise self._refused(error) from None

    @contextmanager
    def transaction(self, *, statement_timeout_ms: int | None = None) -> Iterator["Transaction"]:
        """Several statements in one transaction: committed at the end, rolled back on an error.

        Raises:
            StoreError: PostgreSQL refused a statement or cannot be reached; nothing is kept.
        """
        transaction = self._begin(limits(statement_timeout_ms or self._statement_timeout_ms))
        try:
            yield transaction
            transaction.run("COMMIT")
        except BaseException as error:
            with suppress(StoreError):
                transaction.run("ROLLBACK")
            self._was_broken()
            if isinstance(error, StoreError) and error.sqlstate == READ_ONLY:
                self.close()
            raise

    @property
    def backend_pid(self) -> int:
        """The server process behind this connection, opened if need be."""
        return int(self.open().info.backend_pid)

    def close(self) -> None:
        """Close the connection if this process opened it; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(psycopg2.Error):
                connection.close()

    def _begin(self, limits: Mapping[str, Any]) -> "Transaction":
        """Open a transaction, on a new connection if the kept one proves broken."""
        try:
            transaction = Transaction(self.open())
            transaction.run("BEGIN;" + _PREAMBLE, limits)
        except StoreError:
            if not self._was_broken():
                raise
            transaction = Transaction(self.open())
            transaction.run("BEGIN;" + _PREAMBLE, limits)
        return transaction

    def _run(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        with self.open().cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else []

    def open(self) -> Lendable:
        """Return the connection, opened now if it is not.

        Raises:
            StoreError: PostgreSQL cannot be reached.
        """
        if self._connection is None or self._pid != os.getpid():
            try:
                self._connection = psycopg2.connect(**self._keywords, connection_factory=Lendable)
            except psycopg2.Error as error:
                raise unreachable(error) from None
            self._pid = os.getpid()
            self._connection.autocommit = True
        return self._connection

    def _refused(self, error: psycopg2.Error) -> StoreError:
        """Name the error; leave a server that became a standby, the next one may be the primary."""
        if error.pgcode == READ_ONLY:
            self.close()
        return named(error)

    def _was_broken(self) -> bool:
        """Drop the connection if it is unusable, and say so."""
        connection = self._connection
        if connection is None:
            return True
        status = extensions.TRANSACTION_STATUS_UNKNOWN
        if not connection.closed:
            status = connection.info.transaction_status
        if status == extensions.TRANSACTION_STATUS_IDLE:
            return False
        self.close()
        return True


class Transaction:
    """An open transaction: statements by name, savepoints. Made by `Database.transaction`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """Run statement `name` and return its rows.

        Raises:
            StoreError: PostgreSQL refused it.
        """
        text = planner_settings(name) + sql.load(name)
        return self.run(text, parameters)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block did if it raises, and keep the transaction usable."""
        self.run("SAVEPOINT reaper_part")
        try:
            yield
        except StoreError:
            self.run("ROLLBACK TO SAVEPOINT reaper_part; RELEASE SAVEPOINT reaper_part")
            raise
        self.run("RELEASE SAVEPOINT reaper_part")

    def run(self, text: str, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """Run constant SQL text and return its rows.

        Raises:
            StoreError: PostgreSQL refused it.
        """
        try:
            # Plain rows, whatever cursor factory the caller's connection has.
            with self._connection.cursor(cursor_factory=extensions.cursor) as cursor:
                cursor.execute(text, parameters)
                return cursor.fetchall() if cursor.description else []
        except psycopg2.Error as error:
            raise named(error) from None


class _Borrowed(Database):
    """Statements inside the caller's own transaction; the caller commits."""

    def __init__(self, connection: Any) -> None:
        self._transaction = Transaction(connection)

    def execute(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        statement_timeout_ms: int | None = None,  # noqa: ARG002 -- the caller's own limits hold
        repeatable: bool = True,  # noqa: ARG002 -- never repeated in somebody else's transaction
    ) -> list[Row]:
        return self._transaction.execute(name, parameters)

    def close(self) -> None:
        """Leave the caller's connection alone."""


def planner_settings(name: str) -> str:
    """Return what statement `name` asks of the planner; sent in front of it."""
    return "SET LOCAL enable_seqscan = off;" if name in _BY_INDEX else ""


def limits(statement_timeout_ms: int) -> dict[str, int]:
    """Return the limits in front of a statement, milliseconds."""
    return {
        "statement_timeout_ms": statement_timeout_ms,
        "lock_timeout_ms": min(LOCK_TIMEOUT_MS, statement_timeout_ms),
    }
