"""The checks of what callers hand in: each returns the value or raises one sentence. No I/O.

They come before any statement is sent, because a statement that PostgreSQL refuses would spoil the
caller's own transaction. No message shows a payload.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from reaper.errors import ConfigError

NAME_LIMIT = 255
"""Characters of a job type, worker id, stage, key or error code: they stand in indexes and logs."""

TEXT_LIMIT = 2_000
"""Characters kept of an error's message: a page on the screen."""

SECONDS_LIMIT = 366 * 86_400
"""The longest lease or delay: more is rather a mistaken unit than meant."""

BATCH_LIMIT = 10_000
"""Jobs of one claim, as of one batch of the reap."""

INT4_MAX = 2**31 - 1
INT8_MAX = 2**63 - 1
"""The largest values of PostgreSQL's integer and bigint."""

T = TypeVar("T")

_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def optional(check: Callable[..., T], what: str, value: object, *bounds: Any) -> T | None:
    """Return None for None, else what `check` returns."""
    return None if value is None else check(what, value, *bounds)


def name(what: str, value: object) -> str:
    """Return a name that is not blank, printable and short enough.

    Raises:
        ConfigError: it is not; the value is shown, cut.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _refused(what, value, "printable text that is not blank")
    if len(value) > NAME_LIMIT:
        raise _refused(what, value, f"up to {NAME_LIMIT} characters, not {len(value)}")
    return value


def names(what: str, values: object) -> list[str]:
    """Return a list of names.

    Raises:
        ConfigError: it is none (a text is no list), or one of them is no name.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _refused(what, values, "a list of names")
    return [name(what, value) for value in values]


def whole(what: str, value: object, minimum: int, maximum: int = INT4_MAX) -> int:
    """Return a whole number within the bounds.

    Raises:
        ConfigError: it is none, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise _refused(what, value, f"a whole number from {minimum} to {maximum}")
    return int(value)


def seconds(what: str, value: object, *, zero: bool = False) -> float:
    """Return a number of seconds above 0, or from 0 if `zero` may be, up to a year.

    Raises:
        ConfigError: it is no finite number, or out of bounds.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= SECONDS_LIMIT  # neither does NaN
        or (value == 0 and not zero)
    ):
        raise _refused(what, value, f"seconds {'from' if zero else 'above'} 0 to {SECONDS_LIMIT}")
    return float(value)


def uuid_text(what: str, value: object) -> str:
    """Return a UUID as text.

    Raises:
        ConfigError: it is none.
    """
    try:
        return str(value if isinstance(value, uuid.UUID) else uuid.UUID(value))  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        raise _refused(what, value, "a UUID") from None


def json_text(what: str, value: object) -> str:
    """Return `value` as JSON text that PostgreSQL can keep.

    Raises:
        ConfigError: it cannot be written as such; the value is not shown.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = type(error).__name__
    else:
        if not _NUL_IN_JSON.search(text):
            return text
        reason = "NUL character"
    raise ConfigError(
        f"the {what} is not JSON that PostgreSQL can keep ({reason}): it takes dicts, lists, text "
        "without NUL and lone surrogates, finite numbers of up to 4,300 digits, booleans and None"
    )


def kept_text(text: object) -> str:
    """Return `text` as PostgreSQL can keep it: no NUL, no lone surrogates, cut at the limit."""
    whole_text = str(text)
    kept = whole_text[:TEXT_LIMIT].encode("utf-8", "replace").decode()
    kept = kept.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept + ("..." if len(whole_text) > TEXT_LIMIT else "")


def _refused(what: str, value: object, allowed: str) -> ConfigError:
    try:
        shown = ascii(value)
    except ValueError:  # an integer of more digits than Python writes out
        shown = f"<{type(value).__name__}>"
    if len(shown) > 60:  # noqa: PLR2004 -- a line of the sentence
        shown = f"{shown[:60]}..."
    return ConfigError(f"{what}={shown} is not allowed: it takes {allowed}")
