"""One tick: batches until short, poison rows isolated, redelivery. Must not import Celery.

A tick is a plain function that a test calls by hand. It is handed what it needs: a database, the
settings, and how to ring (`Publish`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from reaper import telemetry
from reaper.config import Settings
from reaper.errors import ConfigError, StoreError
from reaper.jobs import BatchResult, DeferredRow, HookRef, HookState, ReapResult
from reaper.store import Database, Transaction, ledger, reaping

Publish = Callable[[Sequence[HookRef]], bool]
"""Rings one doorbell per hook. Returns False if any was not sent, or perhaps not; never raises."""

REDELIVERY_BATCH = 2_000
"""Doorbells one redelivery rings at most: about two seconds of work for one hook worker."""

LOST_BATCH = 1_000
"""Lost hooks one redelivery releases at most."""


def run_tick(
    database: Database, settings: Settings, publish: Publish, *, quiet_seconds: float | None = None
) -> ReapResult:
    """Take back every expired lease, as far as the tick's time budget goes.

    1. Begin, unless another tick began within half the interval: then do nothing.
    2. Reap batch after batch, each its own transaction, until one comes back short or the budget
       is spent; set poison rows aside.
    3. Ring for each batch's dead letters once it is committed. The first failure ends the ringing
       for this tick, never the reaping; what was not sent is due at once.
    4. Record the counts.

    Safe to run any number of times and anywhere at once.

    Args:
        database: where the leases are.
        settings: batch size, retry delay, interval.
        publish: how to ring.
        quiet_seconds: overrides half the interval; 0 runs in any case.

    Raises:
        ConfigError: batch size or retry delay out of range; nothing was touched.
        StoreError: a batch failed for a reason that is no row's fault. Batches before it are
            committed and rung for; the next tick goes on.
    """
    check_arguments(settings.claim_batch_size, settings.retry_delay_ms)
    quiet = settings.interval_seconds / 2 if quiet_seconds is None else quiet_seconds
    if not reaping.begin_tick(database, quiet_seconds=quiet):
        return ReapResult(ran=False)
    result = _drain(database, settings, publish)
    skipped = reaping.finish_tick(database, result)
    result = replace(result, skipped=skipped)
    telemetry.tick_finished(result)
    return result


def redeliver(
    database: Database, settings: Settings, publish: Publish, count_messages: Callable[[], int]
) -> int:
    """Ring again for hooks whose message or worker was lost; return how many doorbells rang.

    1. Release running hooks past their time: their worker is lost.
    2. Ring the probes of throttled types.
    3. Count the owed hooks past their time and the messages that still wait; ring the difference,
       oldest first. Where enough messages wait, nothing is lost.

    Safe to run any number of times and anywhere at once.

    Raises:
        StoreError: PostgreSQL refused or is away; the next redelivery goes on.
    """
    lost = ledger.release_lost_hooks(
        database, max_crashes=settings.hook_max_crashes, batch_size=LOST_BATCH
    )
    for event in lost:
        telemetry.hook_worker_lost(event, final=event.state is HookState.FAILED)
    hooks = ledger.take_probes(database)
    due = ledger.count_due_hooks(database, count_limit=1_000_000)
    if due:
        missing = min(due - count_messages(), REDELIVERY_BATCH)
        if missing > 0:
            hooks += ledger.take_due_hooks(database, batch_size=missing)
    if hooks and not publish(hooks):
        ledger.mark_unsent(database, hooks)
        return 0
    if hooks:
        telemetry.hooks_redelivered(len(hooks))
    return len(hooks)


def check_arguments(batch_size: int, retry_delay_ms: int) -> None:
    """Return if a reap may run with these.

    Raises:
        ConfigError: with the argument, its value and what is allowed.
    """
    if isinstance(batch_size, bool) or not 1 <= batch_size <= 10_000:
        raise ConfigError(f"claim_batch_size={batch_size!r} is not allowed: it takes 1 to 10000")
    if isinstance(retry_delay_ms, bool) or retry_delay_ms < 1:
        raise ConfigError(f"retry_delay_ms={retry_delay_ms!r} is not allowed: it takes 1 or more")


def _drain(database: Database, settings: Settings, publish: Publish) -> ReapResult:
    deadline = time.monotonic() + settings.tick_budget_seconds
    total = ReapResult()
    ringing, scan_from = True, None
    while True:
        batch = _reap_batch(database, settings, scan_from)
        if batch.terminal:
            hooks = [record.hook for record in batch.terminal]
            ringing = ringing and publish(hooks)
            if not ringing:
                ledger.mark_unsent(database, hooks)
        total = _add(total, batch, len(batch.terminal) if ringing else 0)
        scan_from = batch.resume_from
        if batch.picked < settings.claim_batch_size or time.monotonic() > deadline:
            return total


def _add(total: ReapResult, batch: BatchResult, published: int) -> ReapResult:
    counts = dict(total.counts)
    reaping.add_counts(counts, batch.counts)

    def of(disposition: str) -> int:
        return sum(n for (_, d), n in batch.counts.items() if d == disposition)

    return replace(
        total,
        batches=total.batches + 1,
        released=total.released + of("released"),
        retried=total.retried + of("retried"),
        dead_lettered=total.dead_lettered + of("dead_lettered"),
        published=total.published + published,
        counts=counts,
        deferred=total.deferred + batch.deferred,
        terminal=total.terminal + batch.terminal,
    )


def _reap_batch(database: Database, settings: Settings, scan_from: datetime | None) -> BatchResult:
    try:
        return reaping.reap_batch(
            database,
            batch_size=settings.claim_batch_size,
            retry_delay_ms=settings.retry_delay_ms,
            scan_from=scan_from,
        )
    except StoreError as error:
        if not error.is_poison:
            raise
    return _isolate(database, settings, scan_from)


def _isolate(database: Database, settings: Settings, scan_from: datetime | None) -> BatchResult:
    """Reap a batch that holds poison: halves under savepoints until the bad rows stand alone.

    One transaction, so that the healthy rows and the list of the bad ones commit together.
    """
    with database.transaction() as transaction:
        picked = reaping.pick_expired(
            transaction, batch_size=settings.claim_batch_size, scan_from=scan_from
        )
        parts = _reap_halves(transaction, settings, [row[:3] for row in picked])
    result = reaping.merge(parts)
    for row in result.deferred:
        telemetry.row_deferred(row)
    resume_from = max((row[3] for row in picked), default=None)
    return replace(result, picked=len(picked), resume_from=resume_from)


def _reap_halves(
    transaction: Transaction, settings: Settings, rows: Sequence[tuple[str, int, int]]
) -> list[BatchResult]:
    if not rows:
        return []
    delay = settings.retry_delay_ms
    try:
        with transaction.savepoint():
            part = reaping.reap_batch(
                transaction,
                batch_size=len(rows),
                retry_delay_ms=delay,
                job_ids=[job_id for job_id, _, _ in rows],
            )
    except StoreError as error:
        if not error.is_poison:
            raise
        if len(rows) == 1:
            bad = DeferredRow(*rows[0], error.sqlstate or "", error.constraint)
            reaping.defer_row(transaction, bad, retry_delay_ms=delay)
            return [BatchResult(1, {}, (), None, (bad,))]
        middle = len(rows) // 2
        return _reap_halves(transaction, settings, rows[:middle]) + _reap_halves(
            transaction, settings, rows[middle:]
        )
    return [part]
