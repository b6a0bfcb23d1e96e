"""P5: 1,000 hooks of 100 ms on eight slots, beside the 80 a second that eight slots can do.

And beside Celery tasks of 100 ms on the same settings: what Celery itself leaves of the 80.
"""

import statistics
from collections.abc import Iterator

from benchmarks.broker import load_app
from benchmarks.stand import Stand
from benchmarks.suite import Result, at_least, interleaved, ratio, rounded
from benchmarks.throughput import hooks_per_second, tasks_per_second

COUNT = 1_000
IDEAL = 80.0


def measure(stand: Stand) -> Iterator[Result]:
    """Drain 1,000 messages that wait, with a worker of eight that has just become ready."""
    load_app(stand)
    count = stand.scaled(COUNT)
    rates = interleaved(
        {
            "reaper": lambda: hooks_per_second(stand, "tenth", count),
            "bare": lambda: tasks_per_second(stand, "tenth", count),
        },
        rounds=stand.rounds,
    )
    shown = rounded(rates)
    value = statistics.median(rates["reaper"]) / IDEAL
    what = "hooks of 100 ms on eight slots / 80 a second"
    yield at_least("P5", what, value, 0.95, "ratio", per_second=shown)
    value = statistics.median(rates["bare"]) / IDEAL
    what = "bare tasks of 100 ms on eight slots / 80 a second"
    yield Result("P5", what, value, "ratio", "report", None)
    what = "hooks of 100 ms / bare tasks of 100 ms"
    yield Result("P5", what, ratio(rates, "reaper", "bare"), "ratio", "report", None)
