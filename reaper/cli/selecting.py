"""The options that choose rows, the same for dead letters and hooks, and what comes of them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from reaper import selection
from reaper.errors import ReaperError
from reaper.selection import Selection

Command = TypeVar("Command", bound=Callable[..., Any])

LIST_LIMIT = 50
"""Rows of a list where nothing else is said: two screens."""

LIMIT_MAX = 1_000_000


class _Read(click.ParamType[Any]):
    """A value read by a function of `reaper.selection`; its sentence becomes click's."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the function makes of the value."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ReaperError as error:
            self.fail(str(error), param, ctx)


JOB_ID = _Read("job_id", selection.job_id)
HOOK_ID = _Read("hook_id", selection.hook_id)
SINCE = _Read("time", selection.since)
ORGANIZATION_ID = _Read("organization_id", selection.organization_id)


def filters(states: Sequence[str], *, limit: int | None) -> Callable[[Command], Command]:
    """Add --type, --since, --organization, --state and --limit to a command."""

    def add(command: Command) -> Command:
        for option in reversed(_options(states, limit)):
            command = option(command)
        return command

    return add


def _options(states: Sequence[str], limit: int | None) -> list[Callable[[Any], Any]]:
    shown = f"The newest so many (default {limit})." if limit else "Only the newest so many."
    result = [
        click.option("--type", "job_type", metavar="TYPE", help="Jobs of this type."),
        click.option(
            "--since",
            type=SINCE,
            metavar="WHEN",
            help="Died since then: 90s, 15m, 2h30m, 1d, 1w ago, or an ISO time (UTC if no zone).",
        ),
        click.option(
            "--organization", type=ORGANIZATION_ID, metavar="UUID", help="Of this organization."
        ),
        click.option(
            "--limit", type=click.IntRange(1, LIMIT_MAX), default=limit, metavar="N", help=shown
        ),
    ]
    if states:
        kind = click.Choice(list(states))
        text = "In this state; may be given again."
        result.append(click.option("--state", "states", type=kind, multiple=True, help=text))
    return result


def chosen(
    ids: Sequence[str] = (),
    *,
    organization: str | None = None,
    states: Sequence[str] = (),
    **filters: Any,
) -> Selection:
    """Return the selection that the options of `filters` mean."""
    return Selection(
        ids=tuple(dict.fromkeys(ids)),
        organization_id=organization,
        states=tuple(states),
        **filters,
    )
