"""Whether the reaper itself is alive, from its last tick. No I/O."""

from reaper.store.overview import LastTick

STALE_INTERVALS = 3
"""So many intervals without a tick are no jitter any more."""

STALE_MIN_SECONDS = 2.0
"""Below this a busy machine would look like a dead reaper."""


def stale_seconds(interval_seconds: float) -> float:
    """Return the age from which the last tick means that nothing reaps."""
    return max(STALE_INTERVALS * interval_seconds, STALE_MIN_SECONDS)


def staleness(tick: LastTick, interval_seconds: float) -> str | None:
    """Return None while ticks are fresh, else a sentence that says what is wrong."""
    limit = stale_seconds(interval_seconds)
    age = tick.finished_seconds_ago
    if age is not None and age <= limit:
        return None
    begun = tick.started_seconds_ago
    if begun is not None and begun <= limit:
        return (
            f"a tick began {begun:.1f} s ago, but "
            + ("none ever finished" if age is None else f"none finished for {age:.0f} s")
            + ": it runs long or fails; see the reap worker's log"
        )
    if age is None:
        return "no tick ever finished: start beat and a reap worker"
    return (
        f"the last tick finished {age:.0f} s ago, the limit is {limit:.1f} s: nothing is reaped; "
        "check beat, the broker and the reap worker"
    )
