"""The psycopg2 connection of the store: an ordinary one that can be lent to a handler."""

from typing import Any

import psycopg2
from psycopg2 import extensions

_AUTOCOMMIT: Any = extensions.connection.autocommit
"""psycopg2's own attribute: `Lendable` puts a check in front of it."""


class LentConnectionError(psycopg2.InterfaceError):
    """A handler tried to end the transaction it was lent, or to change or close its connection."""


class Lendable(extensions.connection):
    """A psycopg2 connection that can be lent: then it refuses, and remembers, what would end it."""

    is_lent = False
    refused: str | None = None

    def commit(self) -> None:
        """Commit, unless lent."""
        self._refuse("commit()")
        super().commit()

    def rollback(self) -> None:
        """Roll back, unless lent."""
        self._refuse("rollback()")
        super().rollback()

    def close(self) -> None:
        """Close, unless lent."""
        self._refuse("close()")
        super().close()

    def reset(self) -> None:
        """Return to the defaults, unless lent."""
        self._refuse("reset()")
        super().reset()

    def set_session(self, *args: Any, **kwargs: Any) -> None:
        """Change the session, unless lent."""
        self._refuse("set_session()")
        super().set_session(*args, **kwargs)

    def set_isolation_level(self, level: int | None) -> None:
        """Change the isolation level, which rolls back, unless lent."""
        self._refuse("set_isolation_level()")
        super().set_isolation_level(level)

    def set_client_encoding(self, encoding: str) -> None:
        """Change the encoding, which rolls back, unless lent."""
        self._refuse("set_client_encoding()")
        super().set_client_encoding(encoding)

    @property
    def autocommit(self) -> bool:
        """Whether each statement commits by itself."""
        return bool(_AUTOCOMMIT.__get__(self))

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._refuse("autocommit")
        _AUTOCOMMIT.__set__(self, value)

    def _refuse(self, what: str) -> None:
        if self.is_lent:
            self.refused = self.refused or what
            raise LentConnectionError(
                f"{what} on the connection of a transactional handler is refused: reaper commits "
                "what the handler did together with its hook; take it out of the handler"
            )
