"""Which rows a person means: by id or by filter, read and checked. Imports no server client.

One class for dead letters and for hooks: a filter means the same in `list` and in an action.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from reaper.errors import ReaperError

_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS = ("weeks", "days", "hours", "minutes", "seconds")


class SelectionError(ReaperError):
    """An id or a filter that means nothing; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Some dead letters or hooks: `ids`, or what all the given filters let through.

    Attributes:
        ids: these, and nothing else.
        job_type: of this type.
        since: died at this time or later; a timedelta counts back from the database's clock.
        organization_id: of this organization.
        states: in one of these states; empty means what each function says.
        limit: the newest so many; None means all.
    """

    ids: tuple[str, ...] = ()
    job_type: str | None = None
    since: datetime | timedelta | None = None
    organization_id: str | None = None
    states: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def is_filter(self) -> bool:
        """Whether a filter is given; a limit alone says how many, not which."""
        return bool(self.job_type or self.since or self.organization_id or self.states)

    def limited(self, count: int) -> int:
        """Return how many of `count` matching rows the limit lets through."""
        return count if self.limit is None else min(count, self.limit)

    def parameters(self) -> dict[str, Any]:
        """Return the filters as the parameters that the statements share."""
        ago = self.since if isinstance(self.since, timedelta) else None
        return {
            "job_type": self.job_type,
            "organization_id": self.organization_id,
            "since_at": self.since if isinstance(self.since, datetime) else None,
            "since_seconds": ago.total_seconds() if ago is not None else None,
            "states": list(self.states) or None,
        }


def require_choice(selection: Selection, *, everything: bool, noun: str) -> None:
    """Return if a bulk action knows what it is for: ids, a filter, or in so many words everything.

    Raises:
        SelectionError: none of them, or two that contradict each other.
    """
    if selection.ids and (selection.is_filter or everything or selection.limit):
        raise SelectionError(f"give ids of {noun} or filters, not both; nothing was changed")
    if everything and selection.is_filter:
        raise SelectionError("--all and a filter contradict each other; nothing was changed")
    if not (selection.ids or selection.is_filter or everything):
        raise SelectionError(
            f"this would change all {noun}; name ids, give a filter such as --type or --since, or "
            "say --all; nothing was changed"
        )


def job_id(text: str) -> str:
    """Return a job's id in its usual spelling.

    Raises:
        SelectionError: `text` is no uuid.
    """
    return _uuid(text, "is not a job id: those are uuids, `reaper dead-letters list` shows them")


def organization_id(text: str) -> str:
    """Return an organization's id in its usual spelling.

    Raises:
        SelectionError: `text` is no uuid.
    """
    return _uuid(text, "is not an organization's id: those are uuids")


def hook_id(text: str) -> str:
    """Return a hook's id.

    Raises:
        SelectionError: `text` is no whole number from 1 up.
    """
    number = text.strip()
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:20]) < 2**63):
        raise SelectionError(
            f"{_shown(text)} is not a hook's id: those are whole numbers, `reaper hooks list` "
            "shows them"
        )
    return str(int(number))


def since(text: str) -> datetime | timedelta:
    """Return a time: seconds ago from `90s`, `15m`, `2h30m`, `1d`, `1w`, or an ISO 8601 time.

    A time without a zone is UTC.

    Raises:
        SelectionError: it is neither.
    """
    given = text.strip().lower()
    parts = _DURATION.fullmatch(given)
    try:
        if parts and given:
            counts = {u: int(n) for u, n in zip(_UNITS, parts.groups(), strict=True) if n}
            return timedelta(**counts)
        at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise SelectionError(
            f"{_shown(text)} is not a time: give how long ago (90s, 15m, 2h30m, 1d, 1w) or when "
            "(2026-01-31T12:00:00+00:00)"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def check_states(states: Iterable[str], allowed: Iterable[str]) -> None:
    """Return if all `states` are among `allowed`.

    Raises:
        SelectionError: one is not.
    """
    known = list(allowed)
    for state in states:
        if state not in known:
            raise SelectionError(f"{_shown(state)} is not a state: choose from {', '.join(known)}")


def check_job_type(job_type: str | None, known: Mapping[str, Any] | Iterable[str]) -> None:
    """Return if `job_type` is None or one of `known`.

    Raises:
        SelectionError: it is not, with the nearest known ones.
    """
    names = list(known)
    if job_type is None or job_type in names:
        return
    from difflib import get_close_matches  # noqa: PLC0415 -- only for this sentence

    near = get_close_matches(job_type, names, n=3) or sorted(names)[:3]
    hint = f"; there are {', '.join(map(_shown, near))}" if near else "; none is defined yet"
    raise SelectionError(f"no job type is called {_shown(job_type)}{hint}")


def _uuid(text: str, complaint: str) -> str:
    try:
        return str(UUID(text.strip()))
    except ValueError:
        raise SelectionError(f"{_shown(text)} {complaint}") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")  # noqa: PLR2004 -- one line
