"""A reading as Prometheus metrics. No I/O.

Counters come from roll-ups in the database: they survive restarts of everything, and pruning. They
are there from the start for every known type, with 0: Prometheus sees no increase in a series that
begins with its first failure. Where a server is away its metrics are absent and its `_up` is 0.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from reaper.errors import ReaperError
from reaper.exporting.reading import DatabaseReading, Reading
from reaper.store.owed_hooks import DURATION_BOUNDS, HookTotal

_UNHANDLED = "unhandled"
_OUTCOMES = ("completed", "failed", "timed_out", _UNHANDLED)
_DISPOSITIONS = ("released", "retried", "dead_lettered")


def families(reading: Reading) -> Iterator[Metric]:
    """Yield every metric of one reading."""
    yield _gauge(
        "reaper_database_up", "1 where PostgreSQL could be read.", _is_up(reading.database)
    )
    yield _gauge("reaper_broker_up", "1 where the broker could be read.", _is_up(reading.queues))
    yield _gauge("reaper_interval_seconds", "REAPER_INTERVAL_SECONDS.", reading.interval_seconds)
    if not isinstance(reading.database, ReaperError):
        yield from _of_leases(reading.database)
        yield from _of_ticks(reading.database)
        yield from _of_hooks(reading.database)
    if not isinstance(reading.queues, ReaperError):
        queues = GaugeMetricFamily(
            "reaper_queue_messages", "Messages waiting in a queue.", labels=["queue"]
        )
        for name, count in reading.queues.items():
            queues.add_metric([name], count)
        yield queues


def _of_leases(read: DatabaseReading) -> Iterator[Metric]:
    leases = read.seen.leases
    yield _gauge("reaper_live_leases", "Leases that have not expired.", leases.live)
    yield _gauge(
        "reaper_expired_leases", "Leases that have expired and wait for the reap.", leases.expired
    )
    yield _gauge(
        "reaper_oldest_expired_lease_seconds",
        "How long the oldest of them has been expired; 0 where none is.",
        leases.oldest_expired_seconds or 0.0,
    )
    yield _gauge("reaper_deferred_rows", "Poison rows set aside.", leases.deferred)


def _of_ticks(read: DatabaseReading) -> Iterator[Metric]:
    age = read.seen.tick.finished_seconds_ago
    yield _gauge(
        "reaper_last_tick_age_seconds",
        "Since the last tick finished, by the database's clock; +Inf before the first.",
        float("inf") if age is None else age,
    )
    yield CounterMetricFamily("reaper_ticks", "Ticks that finished.", value=read.seen.tick.ticks)
    reaped = CounterMetricFamily(
        "reaper_reaped", "Leases taken back.", labels=["job_type", "disposition"]
    )
    totals = {(t, d): 0 for t in read.job_types for d in _DISPOSITIONS}
    totals |= {(row.job_type, row.disposition): row.total for row in read.tick_totals}
    for labels, total in totals.items():
        reaped.add_metric(list(labels), total)
    yield reaped


def _of_hooks(read: DatabaseReading) -> Iterator[Metric]:
    hooks = GaugeMetricFamily(
        "reaper_hooks",
        "Ledger rows by state, without the completed ones.",
        labels=["job_type", "state"],
    )
    for row in read.seen.hooks:
        hooks.add_metric([row.job_type, row.state], row.count)
    yield hooks
    yield _gauge(
        "reaper_oldest_pending_hook_seconds",
        "How long the oldest hook that may run has been owed; 0 where none is.",
        read.seen.oldest_pending_seconds,
    )
    throttled = GaugeMetricFamily(
        "reaper_hook_type_throttled", "1 for a type whose hooks time out.", labels=["job_type"]
    )
    for job_type in read.seen.throttled:
        throttled.add_metric([job_type], 1)
    yield throttled
    yield _finished(read)
    yield _durations(read.hook_totals)


def _finished(read: DatabaseReading) -> Metric:
    finished = CounterMetricFamily(
        "reaper_hooks_finished", "Hooks that ended, by outcome.", labels=["job_type", "state"]
    )
    totals = {(t, s): 0 for t in read.job_types for s in _OUTCOMES}
    for row in read.hook_totals:
        key = (row.job_type, row.state)
        totals[key] = totals.get(key, 0) + row.total
    for labels, total in totals.items():
        finished.add_metric(list(labels), total)
    return finished


def _durations(totals: Iterable[HookTotal]) -> Metric:
    """How long handlers ran; where there was no handler, nothing ran."""
    durations = HistogramMetricFamily(
        "reaper_hook_duration_seconds",
        "How long the last try of a finished hook took.",
        labels=["job_type"],
    )
    ran = [row for row in totals if row.state != _UNHANDLED]
    for job_type, rows in groupby(ran, lambda row: row.job_type):
        of_type = list(rows)
        counts = dict.fromkeys((*DURATION_BOUNDS, float("inf")), 0)
        for row in of_type:
            counts[row.upper_seconds] = counts.get(row.upper_seconds, 0) + row.total
        durations.add_metric(
            [job_type],
            buckets=_cumulative(counts),
            sum_value=sum(row.seconds for row in of_type),
        )
    return durations


def _cumulative(counts: dict[float, int]) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound in sorted(counts):
        total += counts[bound]
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
    return buckets


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _is_up(part: object) -> int:
    return 0 if isinstance(part, ReaperError) else 1
