"""One tick: batches until short, poison rows isolated, redelivery. Must not import Celery.

A tick is a plain function that a test calls by hand. It is handed what it needs: a database, the
settings, and how to ring (`Publish`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

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

ISOLATION_SECONDS = 5.0
"""An isolation commits what it has after this: its locks and its healthy rows wait no longer, and
what it found stays found. Long enough for some five hundred poison rows."""

STUCK_DELAY_MS = 60_000
"""A lease that is stuck by itself is tried again after this at the earliest: each try may cost a
tick three statements' limits (45 s), and others are taken back at full speed in between."""

BATCH_SIZE_MAX = 10_000
"""Leases in one statement. Keep in sync with Settings (tests/reap/test_results.py compares)."""

RETRY_DELAY_MAX_MS = 2_147_483_647
"""What job_attempts.retry_delay_ms holds; more would look like poison in every row. As above."""

Leased = tuple[str, int, int, str, str]
"""A picked lease: job id, run number, attempt, expiry, job type."""


def run_tick(
    database: Database, settings: Settings, publish: Publish, *, quiet_seconds: float | None = None
) -> ReapResult:
    """Take back every expired lease, as far as the tick's time budget goes.

    1. Begin, unless another tick began within half the interval: then do nothing.
    2. Reap batch after batch, each its own transaction, until one comes back short or the budget
       is spent; set poison rows aside. A batch that is stuck, because a row's trigger waits for a
       lock or all of them are slow, is undone, and the tick goes on row by row with a budget anew.
    3. Ring for each batch's dead letters once it is committed. The first failure ends the ringing
       for this tick, never the reaping; what was not sent is due at once.
    4. Record the counts, and up to which expiry every lease was looked at: where looking at all has
       become dear, the next ticks begin there (sql/begin_tick.sql has the rule).

    Safe to run any number of times and anywhere at once.

    Args:
        database: where the leases are.
        settings: batch size, retry delay, interval.
        publish: how to ring.
        quiet_seconds: overrides half the interval; 0 runs in any case and looks at all leases.

    Raises:
        ConfigError: batch size or retry delay out of range; nothing was touched.
        StoreError: a batch failed for a reason that is no row's fault. Batches before it are
            committed and rung for; the next tick goes on.
    """
    check_arguments(settings.claim_batch_size, settings.retry_delay_ms)
    quiet = settings.interval_seconds / 2 if quiet_seconds is None else quiet_seconds
    scan_from = reaping.begin_tick(database, quiet_seconds=quiet, scan_all=quiet == 0)
    if scan_from is None:
        return ReapResult(ran=False)
    result, scanned_to, seconds = _drain(database, settings, publish, scan_from)
    skipped = reaping.finish_tick(
        database,
        result,
        scanned_to=scanned_to,
        full_scan_seconds=seconds if scan_from == reaping.SCAN_ALL else None,
    )
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
    if not _is_whole(batch_size) or not 1 <= batch_size <= BATCH_SIZE_MAX:
        raise ConfigError(
            f"claim_batch_size={batch_size!r} is not allowed: it takes a whole number from 1 to "
            f"{BATCH_SIZE_MAX}"
        )
    if not _is_whole(retry_delay_ms) or not 1 <= retry_delay_ms <= RETRY_DELAY_MAX_MS:
        raise ConfigError(
            f"retry_delay_ms={retry_delay_ms!r} is not allowed: it takes a whole number from 1 to "
            f"{RETRY_DELAY_MAX_MS}"
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _drain(
    database: Database, settings: Settings, publish: Publish, scan_from: str
) -> tuple[ReapResult, str, float]:
    """Reap until a batch comes back short or the budget is spent.

    Returns:
        The counts, the expiry before which every lease was looked at, and the seconds until the
        first lease was met.
    """
    idle = reaping.find_expired(database, scan_from=scan_from)
    if idle:
        return _add(ReapResult(), idle, 0), idle.scanned_to or scan_from, idle.seconds
    deadline = time.monotonic() + settings.tick_budget_seconds
    size = settings.claim_batch_size
    total, seconds = ReapResult(), 0.0
    ringing = True
    while True:
        batch, went = _reap_what_goes(database, settings, size, scan_from)
        if went < size:
            size, deadline = went, time.monotonic() + settings.tick_budget_seconds
        if batch.terminal:
            hooks = [record.hook for record in batch.terminal]
            ringing = ringing and publish(hooks)
            if not ringing:
                ledger.mark_unsent(database, hooks)
        seconds = seconds if total.batches else batch.seconds
        total = _add(total, batch, len(batch.terminal) if ringing else 0)
        scan_from = batch.scanned_to or scan_from
        if batch.drained or time.monotonic() > deadline:
            return total, scan_from, seconds


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


def _reap_what_goes(
    database: Database, settings: Settings, batch_size: int, scan_from: str
) -> tuple[BatchResult, int]:
    """Reap a batch, or one row where the batch is stuck; return the size to go on with, too."""
    try:
        return _reap_batch(database, settings, batch_size, scan_from), batch_size
    except StoreError as error:
        if batch_size == 1 or not error.is_stuck:
            raise
        telemetry.batch_stuck(error, batch_size=batch_size)
    return _reap_batch(database, settings, 1, scan_from), 1


def _reap_batch(
    database: Database, settings: Settings, batch_size: int, scan_from: str
) -> BatchResult:
    try:
        return reaping.reap_batch(
            database,
            batch_size=batch_size,
            retry_delay_ms=settings.retry_delay_ms,
            scan_from=scan_from,
        )
    except StoreError as error:
        if not _is_by_rows(error, batch_size):
            raise
    return _isolate(database, settings, batch_size, scan_from)


def _is_by_rows(error: StoreError, rows: int) -> bool:
    """Whether rows among these are to blame; being stuck is, where one row is by itself."""
    return error.is_poison or (rows == 1 and error.is_stuck)


def _isolate(
    database: Database, settings: Settings, batch_size: int, scan_from: str
) -> BatchResult:
    """Reap a batch that holds poison: halves under savepoints until the bad rows stand alone.

    One transaction, so that the healthy rows and the list of the bad ones commit together. After
    `ISOLATION_SECONDS` it commits what it has and leaves the younger rest to the next batch.
    """
    deadline = time.monotonic() + ISOLATION_SECONDS
    parts: list[BatchResult] = []
    with database.transaction() as transaction:
        picked = reaping.pick_expired(transaction, batch_size=batch_size, scan_from=scan_from)
        waiting = [picked] if picked else []
        while waiting and (not parts or time.monotonic() < deadline):
            rows = waiting.pop()
            part = _reap_part(transaction, settings, rows, scan_from)
            if part is not None:
                parts.append(part)
            else:
                middle = len(rows) // 2
                waiting += [rows[middle:], rows[:middle]]  # the older half comes next
    result = reaping.merge(parts)
    for row in result.deferred:
        telemetry.row_deferred(row)
    reached = waiting[-1][0] if waiting else picked[-1] if picked else None
    return replace(
        result,
        drained=not waiting and len(picked) < batch_size,
        scanned_to=reached[3] if reached else None,
    )


def _reap_part(
    transaction: Transaction, settings: Settings, rows: Sequence[Leased], scan_from: str
) -> BatchResult | None:
    """Reap these rows, or set one aside that stands alone; None: there is poison in them, halve."""
    delay = settings.retry_delay_ms
    try:
        with transaction.savepoint():
            return reaping.reap_batch(
                transaction,
                batch_size=len(rows),
                retry_delay_ms=delay,
                scan_from=scan_from,
                job_ids=[row[0] for row in rows],
            )
    except StoreError as error:
        if not _is_by_rows(error, len(rows)):
            raise
        if len(rows) > 1:
            return None
        if error.is_stuck:
            delay = max(delay, STUCK_DELAY_MS)
        job_id, run_number, attempt, _, job_type = rows[0]
        state = error.sqlstate or ""
        bad = DeferredRow(job_id, run_number, attempt, state, error.constraint, job_type)
        reaping.defer_row(transaction, bad, retry_delay_ms=delay)
        return BatchResult(1, {}, (), drained=False, scanned_to=None, deferred=(bad,))
