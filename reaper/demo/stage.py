"""Runs the demo: servers, reaper's three processes, two workers that die; watches the database.

Everything it starts ends with it. Must not read reaper's settings: the demo touches nothing of the
user's, whatever the environment and the current directory hold.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from reaper import leases
from reaper.demo import holder
from reaper.demo.outcomes import JobOutcome, read_outcomes
from reaper.demo.scenario import ALIVE_SECONDS, DEADLINE_SECONDS, ROLES, SETTINGS
from reaper.demo.screen import Screen
from reaper.demo.story import tell
from reaper.demo.verification import count, find_differences
from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.errors import ReaperError
from reaper.processes import (
    CELERY_COMMANDS,
    Child,
    Children,
    StopSignals,
    celery_command,
    without_settings,
)
from reaper.store import Database, schema

_LOOK_EVERY_SECONDS = 0.1

_STOP_SECONDS = 5.0
"""An idle worker takes one to three seconds to leave."""

_LOG_LINES = 12

_INTRODUCTION = """\
Workers lease jobs in a PostgreSQL table and renew their leases while they work. A worker that dies
renews nothing: its leases expire. reaper takes them back: a job with attempts left goes back into
the queue; one without is dead-lettered, and your handler for its type, its hook, is called.
"""

_OVERRIDES_NOTHING = "# The demo's own, so that none that is lying around is found.\n"

_THROW_AWAY = {"fsync": "off", "full_page_writes": "off"}
"""The demo's data does not outlive it."""


class Stopped(Exception):  # noqa: N818 -- no error
    """Somebody asked for the end."""


class DemoFailed(ReaperError):  # noqa: N818 -- named as what happened
    """A process of the demo ended that should not have."""


@dataclass(slots=True)
class _Stage:
    """What the running demo consists of."""

    screen: Screen
    stop: StopSignals
    directory: Path
    children: Children
    database: Database
    environment: dict[str, str]
    began: float
    outcomes: tuple[JobOutcome, ...] = ()
    dead: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str]) -> Child:
        """Start a process; its log is a file of its name."""
        with (self.directory / f"{name}.log").open("wb") as log:
            return self.children.start(
                name,
                command,
                environment=self.environment,
                directory=self.directory,
                output=log.fileno(),
            )

    def start_holder(self, name: str) -> Child:
        """Start a process that leases jobs."""
        return self.start(name, [sys.executable, "-m", holder.__name__, name])

    def look(self) -> None:
        """Read the database, tell what is new, check the processes."""
        if self.stop:
            raise Stopped
        before, self.outcomes = self.outcomes, read_outcomes(self.database)
        for line in tell(before, self.outcomes):
            self.screen.say(line)
        names = [*CELERY_COMMANDS, *self.dead]
        self.screen.show(self.outcomes, {n: self.dead.get(n, "running") for n in names})
        ended = self.children.first_ended(ignore=tuple(self.dead))
        if ended is not None and not self._is_planned(ended):
            self._fail(ended.name, ended.collect())

    def show_logs(self) -> None:
        """Show how the logs end, for somebody who wonders what went wrong."""
        for name in (*CELERY_COMMANDS, holder.FIRST, holder.SECOND):
            self.screen.note(f"the end of {name}'s log:\n{self._log_tail(name)}\n")

    def _is_planned(self, ended: Child) -> bool:
        """Whether this is the second worker, killed by its job."""
        if ended.name != holder.SECOND:
            return False
        status = ended.collect()
        self.dead[ended.name] = status
        self.screen.say(f"{ended.name} died inside its job: {status}, as when memory runs out")
        return status == f"signal {signal.SIGKILL.name}"

    def _fail(self, name: str, status: str) -> NoReturn:
        raise DemoFailed(
            f"the demo's process {name} ended with {status}; the end of its log:\n"
            f"{self._log_tail(name)}"
        )

    def _log_tail(self, name: str) -> str:
        path = self.directory / f"{name}.log"
        text = path.read_text("utf-8", "replace") if path.exists() else "(it was not started)"
        return "\n".join(text.splitlines()[-_LOG_LINES:])


def run(screen: Screen, stop: StopSignals) -> dict[str, Any]:
    """Run the demo and return its summary; `ok` says whether all went as planned.

    1. Start PostgreSQL and Valkey, create the schema, enqueue the jobs.
    2. Start beat, the reap worker and the hook worker, and the first worker, which leases all jobs.
    3. Kill the first worker; when its leases are back in the queue start the second.
    4. Watch until every job and hook has ended, or the time is up, and compare with the plan.

    Raises:
        ReaperError: a server did not start, or a process ended that should not have.
        Stopped: a signal asked for the end. Nothing is left running then either.
    """
    began = time.monotonic()
    with _stage(screen, stop, began) as stage:
        _act(stage)
        differences = find_differences(stage.outcomes)
        if differences:
            stage.show_logs()
        for job_type, sentence in differences.items():
            screen.say(f"not as planned, {job_type}: {sentence}")
        screen.say("ending all processes")
        counts = count(stage.outcomes)
        seconds = round(time.monotonic() - began, 1)
    summary = {"ok": not differences, **counts, "seconds": seconds}
    screen.sum_up(differences, summary)
    return summary


@contextmanager
def _stage(screen: Screen, stop: StopSignals, began: float) -> Iterator[_Stage]:
    """Start the servers; end everything afterwards, in the opposite order."""
    clean = without_settings(os.environ)
    for name in os.environ.keys() - clean.keys():
        del os.environ[name]  # libpq reads PG* in this process too
    screen.note(_INTRODUCTION)
    screen.say("PostgreSQL and Valkey start, on ports and in directories of their own")
    with ExitStack() as stack:
        valkey = stack.enter_context(EmbeddedValkey(persistence=False))
        _check(stop)
        postgres = stack.enter_context(EmbeddedPostgres(settings=_THROW_AWAY))
        _check(stop)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reaper-demo-")))
        (directory / "celeryconfig.py").write_text(_OVERRIDES_NOTHING)
        database = Database(postgres.dsn, application_name="reaper demo")
        stack.callback(database.close)
        urls = {"REAPER_DATABASE_URL": postgres.dsn, "REAPER_BROKER_URL": valkey.url}
        children = stack.enter_context(Children(stop_seconds=_STOP_SECONDS))
        environment = clean | dict(SETTINGS) | urls | {"TMPDIR": str(directory)}
        yield _Stage(screen, stop, directory, children, database, environment, began)


def _act(stage: _Stage) -> None:
    _enqueue(stage.database)
    stage.screen.say("celery beat, the reap worker and the hook worker start")
    for name in CELERY_COMMANDS:
        stage.start(name, celery_command(name, "--loglevel", "INFO"))
    first = stage.start_holder(holder.FIRST)
    _watch_until(stage, lambda jobs: all(job.attempt for job in jobs))
    alive_until = time.monotonic() + ALIVE_SECONDS
    _watch_until(stage, lambda _: time.monotonic() > alive_until)
    held = sum(job.status == "LEASED" for job in stage.outcomes)
    stage.dead[holder.FIRST] = f"signal {signal.SIGKILL.name}"
    first.signal(signal.SIGKILL)
    stage.screen.say(f"{holder.FIRST} is killed (SIGKILL) while it holds {held} leases")
    _watch_until(stage, lambda jobs: any(job.retried for job in jobs))
    stage.start_holder(holder.SECOND)
    _watch_until(stage, lambda jobs: all(job.is_final for job in jobs))


def _enqueue(database: Database) -> None:
    schema.migrate(database, with_job_tables=True)
    for role in ROLES:
        leases.define_job_type(database, role.job_type, max_attempts=role.max_attempts)
        for number in range(role.job_count):
            leases.enqueue(database, role.job_type, {"order": number + 1})


def _watch_until(stage: _Stage, is_reached: Callable[[Sequence[JobOutcome]], bool]) -> None:
    """Look until it is reached; after the demo's deadline return at once: the summary says it."""
    while True:
        stage.look()
        late = time.monotonic() - stage.began > DEADLINE_SECONDS
        if late or is_reached(stage.outcomes):
            return
        time.sleep(_LOOK_EVERY_SECONDS)


def _check(stop: StopSignals) -> None:
    if stop:
        raise Stopped
