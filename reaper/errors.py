"""The errors reaper raises on purpose. Imports nothing.

Each message is one sentence that says what happened, names the value and ends with the cure; none
holds a secret, a payload or a row's contents.
"""


class ReaperError(Exception):
    """Something reaper can name went wrong; the message says what and what to do."""


class ConfigError(ReaperError):
    """A setting or an argument is missing, malformed or contradicts another one."""


class RegistryError(ReaperError):
    """A handler module does not import, or two handlers claim one job type."""


class StoreError(ReaperError):
    """PostgreSQL refused a statement or could not be reached.

    Attributes:
        sqlstate: the five-character SQLSTATE, or None where the connection itself failed.
        constraint: the name of the violated constraint, if there was one.
    """

    def __init__(
        self, message: str, *, sqlstate: str | None = None, constraint: str | None = None
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.constraint = constraint

    @property
    def is_poison(self) -> bool:
        """Whether a row's own contents caused it: data (22), constraint (23) or trigger (P0)."""
        return self.sqlstate is not None and self.sqlstate[:2] in {"22", "23", "P0"}

    @property
    def is_stuck(self) -> bool:
        """Whether it ran into its time limit (57014) or waited too long for a lock (55P03)."""
        return self.sqlstate in {"57014", "55P03"}


class SchemaError(StoreError):
    """The schema `reaper` or the job tables are missing, foreign or of another version."""


class LeaseLost(ReaperError):  # noqa: N818 -- the field's word for it, see docs/architecture.md
    """The lease is no longer yours: expired, reaped or taken by another run; nothing is written."""
