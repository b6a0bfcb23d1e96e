"""Plain text for the terminal and for pipes: tables, ages, times. Nothing from a row can steer it.

Job types, worker ids and error texts are other people's: control characters in them are replaced.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

CELL_WIDTH = 60
"""Of one cell in a list; `show` prints the whole text."""

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def printable(value: object, width: int | None = None) -> str:
    """Return the value on one line, `-` for None, cut to `width` characters."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return text if width is None or len(text) <= width else text[: width - 3] + "..."


def moment(at: datetime) -> str:
    """Return a time in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age(seconds: float | None) -> str:
    """Return a time span for people: 0.3s, 42s, 5m10s, 3h05m, 2d04h."""
    if seconds is None:
        return "-"
    if seconds < 10:  # noqa: PLR2004 -- where tenths stop to matter
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, name in _STEPS:
        if whole >= size:
            lesser = {"d": (3_600, "h"), "h": (60, "m"), "m": (1, "s")}[name]
            return f"{whole // size}{name}{whole % size // lesser[0]:02d}{lesser[1]}"
    return f"{whole}s"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under headings, columns aligned, numbers to the right."""
    kept = list(rows)
    cells = [[printable(cell, CELL_WIDTH) for cell in row] for row in kept]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [
        bool(kept) and all(isinstance(row[i], int | float) for row in kept)
        for i in range(len(headings))
    ]
    return "\n".join(_line(line, widths, right) for line in [list(headings), *cells])


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Return one `name  value` a line, values aligned and uncut."""
    shown = [(name, printable(value)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = (
        f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(parts).rstrip()
