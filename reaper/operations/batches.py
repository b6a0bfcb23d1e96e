"""The walk of a bulk action: batch after batch, each its own transaction. Knows no table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

BATCH_SIZE = 500
"""Rows per transaction of a bulk action: locks are held for milliseconds, and what is done stays
done where a later batch fails."""

Progress = Callable[[int], object]
"""Told after each batch how many rows it changed."""

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What a bulk action did: `changed` of the `matching` rows there were when it began.

    The rest was held by somebody else, or moved on, in between.
    """

    matching: int
    changed: int

    @property
    def left(self) -> int:
        """Rows that matched and were not changed."""
        return max(0, self.matching - self.changed)


def walk(
    step: Callable[[Place, int], tuple[int, Place | None]],
    start: Place,
    *,
    most: int,
    progress: Progress | None = None,
) -> int:
    """Run `step(place, batch_size)` until it finds nothing more or changed `most` rows.

    Args:
        step: changes a batch; returns how many rows, and where it stopped or None at the end.
        start: the first place.
        most: change no more rows than this.
        progress: told after each batch.

    Returns:
        How many rows were changed.
    """
    place: Place | None = start
    changed = 0
    while place is not None and changed < most:
        count, place = step(place, min(BATCH_SIZE, most - changed))
        changed += count
        if progress is not None:
            progress(count)
    return changed
