"""The dead-man's switch for the reaper itself: is it alive, and if not, why. No I/O."""

from reaper.errors import ReaperError
from reaper.exporting.reading import Reading
from reaper.operations.freshness import staleness


def illness(reading: Reading) -> str | None:
    """Return None while leases are being taken back and notices go out, else what stops them."""
    reasons = [str(part) for part in (reading.database, reading.queues) if _is_error(part)]
    if not isinstance(reading.database, ReaperError):
        stale = staleness(reading.database.seen.tick, reading.interval_seconds)
        reasons += [stale] if stale else []
    return "\n".join(reasons) or None


def _is_error(part: object) -> bool:
    return isinstance(part, ReaperError)
