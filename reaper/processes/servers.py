"""A database and a broker for development: the ones that are set, else embedded ones."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.errors import ConfigError
from reaper.store import Database, schema

_MARK = "# Written by `reaper up`, which removes it when it ends.\n"


@dataclass(frozen=True, slots=True)
class Servers:
    """Where database and broker are; the embedded ones among them run in this process's care."""

    database_url: str
    broker_url: str
    postgres: EmbeddedPostgres | None
    valkey: EmbeddedValkey | None

    @property
    def exports(self) -> list[str]:
        """The lines that make another shell use them."""
        return [
            f"export REAPER_DATABASE_URL={shlex.quote(self.database_url)}",
            f"export REAPER_BROKER_URL={shlex.quote(self.broker_url)}",
        ]

    def first_ended(self) -> str | None:
        """Return the name of an embedded server that has ended."""
        for server in (self.postgres, self.valkey):
            if server is not None and not server.is_running:
                return server.title
        return None


@contextmanager
def development_servers(
    database_url: str | None,
    broker_url: str | None,
    *,
    directory: Path | None,
    check_schema: bool = True,
) -> Iterator[Servers]:
    """Start what is not given (None), and stop it afterwards; see that the schema is there.

    An embedded database is migrated, job tables included; a given one is only checked.

    Args:
        database_url: where PostgreSQL is, or None.
        broker_url: where the broker is, or None.
        directory: keeps the data of the embedded servers; None: it goes with them.
        check_schema: False leaves the schema to whoever uses the servers.

    Raises:
        ReaperError: a server did not start or cannot be reached.
        SchemaError: the given database needs `reaper migrate`.
    """
    # PostgreSQL first: it refuses a directory that another one is using.
    postgres = None if database_url else EmbeddedPostgres(_within(directory, "postgres"))
    valkey = None if broker_url else EmbeddedValkey(_within(directory, "valkey"))
    try:
        if postgres is not None:
            postgres.start()
        if check_schema:
            _prepare(postgres, database_url or "")
        if valkey is not None:
            valkey.start()
        yield Servers(
            database_url or (postgres.dsn if postgres else ""),
            broker_url or (valkey.url if valkey else ""),
            postgres,
            valkey,
        )
    finally:
        for server in (valkey, postgres):
            if server is not None:
                server.stop()


@contextmanager
def environment_file(path: Path | None, lines: list[str]) -> Iterator[None]:
    """Write `lines` to `path`, readable by its owner alone, and remove it afterwards.

    Raises:
        ConfigError: there is a file that is not ours, or it cannot be written.
    """
    if path is None:
        yield
        return
    try:
        if path.exists() and not path.read_text("utf-8", "replace").startswith(_MARK):
            raise ConfigError(f"{path} is there and not written by `reaper up`; name another file")
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.touch(mode=0o600)
        unfinished.write_text(_MARK + "\n".join(lines) + "\n")
        unfinished.rename(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}; name another file"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def _prepare(postgres: EmbeddedPostgres | None, database_url: str) -> None:
    database = Database(postgres.dsn if postgres else database_url, application_name="reaper up")
    try:
        if postgres is None:
            schema.check(database)
        else:
            schema.migrate(database, with_job_tables=True)
    finally:
        database.close()


def _within(directory: Path | None, name: str) -> Path | None:
    return directory / name if directory else None
