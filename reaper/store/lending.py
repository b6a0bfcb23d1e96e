"""A connection lent to a transactional handler, inside a transaction the handler must not end.

What the handler does with it commits together with the record of its hook, or not at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg2
from psycopg2 import extensions

from reaper.errors import ReaperError, StoreError
from reaper.store.connection import Database, Transaction, limits
from reaper.store.lendable import Lendable
from reaper.store.refusals import named

_BEGIN = (
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    "SET LOCAL statement_timeout = %(statement_timeout_ms)s;"
    "SET LOCAL lock_timeout = %(lock_timeout_ms)s;"
    "SELECT pg_current_xact_id()::text"
)
"""Without the store's SET CONSTRAINTS: a handler's deferred constraints stay deferred."""

_XID = "SELECT pg_current_xact_id_if_assigned()::text"

_CURE = "with transactional=True reaper ends the transaction: take that out of the handler"


class TransactionBroken(ReaperError):  # noqa: N818 -- becomes the hook's error, never leaves reaper
    """A transactional handler ended its transaction by itself, or its hook was claimed again."""


class Lent:
    """The lent connection and the transaction it was lent in. Set `keep` to have it committed."""

    def __init__(self, connection: Lendable, statement_timeout_ms: int) -> None:
        self.connection = connection
        self.transaction = Transaction(connection)
        self.keep = False
        connection.autocommit = False
        self._xid = self.transaction.run(_BEGIN, limits(statement_timeout_ms))
        connection.is_lent = True

    def check(self) -> None:
        """Return if this is still the transaction it was lent in, whole and idle.

        Raises:
            TransactionBroken: the handler ended it, tried to, or left it aborted or busy.
            StoreError: the connection was lost.
        """
        if self.connection.refused:
            raise TransactionBroken(
                f"the handler called {self.connection.refused} on the connection it was lent, its "
                f"effects were rolled back; {_CURE}"
            )
        status = self.connection.info.transaction_status
        if status == extensions.TRANSACTION_STATUS_INERROR:
            raise TransactionBroken(
                "a statement of the handler failed and the handler went on, so its transaction is "
                "aborted, and its effects were rolled back; let the handler raise, or put a "
                "SAVEPOINT around what may fail"
            )
        if status == extensions.TRANSACTION_STATUS_ACTIVE:
            raise TransactionBroken(
                "the handler returned while a statement was still running on the connection it was "
                "lent, its effects were rolled back; let it wait for its statements"
            )
        if self.transaction.run(_XID) != self._xid:
            raise TransactionBroken(
                "the handler sent COMMIT or ROLLBACK on the connection it was lent; what it did "
                f"after that was rolled back; {_CURE}"
            )


@contextmanager
def lend(database: Database, *, statement_timeout_ms: int) -> Iterator[Lent]:
    """Lend the process's connection; commit at the end if `keep` was set, else undo.

    The connection is closed afterwards in any case: a handler may have left anything on it, such as
    settings, temporary tables or a cursor factory.

    Raises:
        StoreError: PostgreSQL cannot be reached, or refused the commit.
    """
    lent = _begin(database, statement_timeout_ms)
    connection = lent.connection
    try:
        yield lent
        connection.is_lent = False
        if lent.keep:
            connection.commit()
    except psycopg2.Error as error:
        raise named(error) from None
    finally:
        connection.is_lent = False
        with suppress(psycopg2.Error):
            connection.rollback()
        database.close()


def _begin(database: Database, statement_timeout_ms: int) -> Lent:
    """Open the transaction, on a new connection if the kept one proves broken."""
    try:
        return Lent(database.open(), statement_timeout_ms)
    except StoreError:
        database.close()
    try:
        return Lent(database.open(), statement_timeout_ms)
    except StoreError:
        database.close()
        raise
