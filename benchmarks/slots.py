"""P5: 1,000 hooks of 100 ms on eight slots, beside the 80 a second that eight slots can do."""

import statistics
from collections.abc import Iterator

from benchmarks.broker import flush, load_app
from benchmarks.stand import Stand, run, wait_until
from benchmarks.suite import Result, at_least, say
from benchmarks.throughput import owe, ring

COUNT = 1_000
IDEAL = 80.0


def measure(stand: Stand) -> Iterator[Result]:
    """From the first start to the last record, by the database's clock."""
    load_app(stand)
    rates = []
    for number in range(stand.rounds):
        rates.append(_rate(stand))
        say(f"  round {number + 1}: {rates[-1]:.1f}/s")
    value = statistics.median(rates) / IDEAL
    shown = [round(rate, 2) for rate in rates]
    yield at_least(
        "P5", "hooks of 100 ms on eight slots / 80 a second", value, 0.95, "ratio", per_second=shown
    )


def _rate(stand: Stand) -> float:
    flush(stand)
    count = stand.scaled(COUNT)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        worker = processes.hook_worker("-l", "INFO", handlers="benchmarks.hook_handlers")
        worker.ready()
        ring(stand, owe(dsn, "tenth", count))
        wait_until(dsn, "SELECT count(*) = 0 FROM reaper.terminal_hooks WHERE state <> 'completed'")
        ((seconds,),) = run(
            dsn,
            "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float"
            " FROM reaper.terminal_hooks",
        )
    return count / seconds
