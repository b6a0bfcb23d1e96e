"""Shows the demo: a live table under the story on a terminal, plain lines anywhere else."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reaper.demo.outcomes import JobOutcome
from reaper.demo.scenario import ROLES

_STATUS_STYLES = {
    "LEASED": "cyan",
    "SUCCEEDED": "green",
    "DEAD_LETTERED": "red",
    "completed": "green",
    "failed": "yellow",
    "timed_out": "yellow",
    "running": "cyan",
    "expired": "red",
}

_PLAIN_WIDTH = 110
"""Columns of the table where no terminal says how wide it is."""


class Screen(AbstractContextManager["Screen"], Protocol):
    """Where the demo is shown. A context manager."""

    def note(self, text: str) -> None:
        """Show a text that is not part of the story."""

    def say(self, line: str) -> None:
        """Add a sentence to the story."""

    def show(self, outcomes: Sequence[JobOutcome], processes: Mapping[str, str]) -> None:
        """Show how jobs and processes stand now."""

    def sum_up(self, differences: Mapping[str, str], summary: Mapping[str, Any]) -> None:
        """Show the plan beside what was found, and where to look next."""


class PlainScreen:
    """One line per event with the seconds since the start; no table while it runs."""

    def __init__(self, stream: IO[str], *, with_summary: bool = True) -> None:
        self._stream = stream
        self._with_summary = with_summary
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Print it at once."""
        print(text, file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Print it at once."""
        self.note(_stamped(self._began, line))

    def show(self, outcomes: Sequence[JobOutcome], processes: Mapping[str, str]) -> None:
        """Show nothing: the story says it."""

    def sum_up(self, differences: Mapping[str, str], summary: Mapping[str, Any]) -> None:
        """Print the summary table, unless somebody else prints the summary."""
        if self._with_summary:
            _print_summary(Console(file=self._stream, width=_PLAIN_WIDTH), differences, summary)


class LiveScreen:
    """The story scrolls up; under it stands a table of the jobs that is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        # Drawn by hand, so that no thread draws while processes are started.
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=False)
        self._shown: object = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print it above the table."""
        self._console.print(Text(text))

    def say(self, line: str) -> None:
        """Print it above the table."""
        self.note(_stamped(self._began, line))

    def show(self, outcomes: Sequence[JobOutcome], processes: Mapping[str, str]) -> None:
        """Draw the table again if anything in it has changed."""
        now = (tuple(outcomes), dict(processes))
        if now != self._shown:
            self._shown = now
            self._live.update(Group(_processes(processes), _jobs(outcomes)), refresh=True)

    def sum_up(self, differences: Mapping[str, str], summary: Mapping[str, Any]) -> None:
        """Replace the live table by the summary."""
        self._live.update(Text(""), refresh=True)
        self._live.stop()
        _print_summary(self._console, differences, summary)


def choose_screen(stdout: IO[str], stderr: IO[str], *, as_json: bool) -> Screen:
    """Return the screen that fits: with `as_json` stdout belongs to the JSON alone."""
    if as_json:
        return PlainScreen(stderr, with_summary=False)
    console = Console(file=stdout, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console)
    return PlainScreen(stdout)


def _stamped(began: float, line: str) -> str:
    return f"{time.monotonic() - began:5.1f} s  {line}"


def _processes(processes: Mapping[str, str]) -> Text:
    text = Text()
    for name, state in processes.items():
        style = "red" if "SIG" in state else "green" if state == "running" else "dim"
        text.append(f"{name} ").append(f"{state}   ", style=style)
    return text


def _jobs(outcomes: Sequence[JobOutcome]) -> Table:
    table = Table("job", "attempt", "status", "held by", "hook", title_justify="left")
    for job in outcomes:
        status = "expired" if job.is_expired else job.status
        hook = job.hook_state.value if job.hook_state else ""
        table.add_row(
            job.job_type,
            f"{job.attempt} of {job.max_attempts}",
            Text(status, style=_STATUS_STYLES.get(status, "")),
            job.worker_id or "",
            Text(hook, style=_STATUS_STYLES.get(hook, "")),
        )
    return table


def _print_summary(
    console: Console, differences: Mapping[str, str], summary: Mapping[str, Any]
) -> None:
    table = Table("job", "what happened to it", "what reaper did", "in the database")
    for role in ROLES:
        wrong = differences.get(role.job_type)
        found = Text(wrong, style="red") if wrong else Text("as planned", style="green")
        table.add_row(role.title, role.happens, role.reaper_does, found)
    hooks = summary["hooks"]
    console.print()
    console.print(table)
    console.print(
        f"{summary['reaped']} leases reaped: {summary['retried']} retried, "
        f"{summary['dead_lettered']} dead-lettered. Hooks: {hooks['completed']} completed, "
        f"{hooks['failed']} failed, {hooks['timed_out']} timed out, {hooks['pending']} pending, "
        f"{hooks['running']} running. {summary['seconds']} s.",
        style="bold" if summary["ok"] else "bold red",
    )
    console.print(_NEXT)


_NEXT = """
Where to look next
  reaper up             the same processes for your own handlers, until Ctrl-C
  README.md             a handler of yours, called for a lease you abandon, in five minutes
  docs/architecture.md  why no notice is lost, whatever dies and when"""
