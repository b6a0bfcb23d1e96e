"""The statements of the reap: one function each, named like its file in reaper/sql."""

from collections.abc import Mapping, Sequence

from reaper.jobs import BatchResult, DeferredRow, ReapResult, TerminalRecord
from reaper.store.connection import Database, Row, Transaction

UNHEARD_SECONDS = 30.0
"""A doorbell unanswered for this long is rung again: above any healthy queue's wait, and what a
lost message costs at most (plus one redelivery interval)."""

SKIP_COUNT_LIMIT = 10_000
"""Skipped rows are counted up to here, so that a tick stays cheap beside a million of them."""


SCAN_ALL = "-infinity"
"""Where a tick begins that looks at every lease, as PostgreSQL writes it."""

FREE_SCAN_SECONDS = 0.020
"""Looking at all leases is never put off while it costs no more than this: some 150,000 dead index
entries. Without a held snapshot it costs a hundredth of it."""

SCAN_WAIT_FACTOR = 100
"""A dearer look at all leases is put off by this many times its cost: so it takes 1 % of the time.
A lease that turns up behind the tick's mark (committed late, skipped under a lock that was then
rolled back) waits that long and one interval more."""

SCAN_WAIT_MAX_SECONDS = 300.0
"""... but never longer than this, whatever it costs."""


def begin_tick(database: Database, *, quiet_seconds: float, scan_all: bool = False) -> str | None:
    """Return the lease expiry to begin at; None if another tick began within `quiet_seconds`.

    Args:
        database: where the leases are.
        quiet_seconds: 0 begins in any case.
        scan_all: look at every lease, whatever that costs.
    """
    rows = database.execute(
        "begin_tick",
        {
            "quiet_seconds": quiet_seconds,
            "scan_all": scan_all,
            "free_seconds": FREE_SCAN_SECONDS,
            "wait_factor": SCAN_WAIT_FACTOR,
            "wait_max_seconds": SCAN_WAIT_MAX_SECONDS,
        },
    )
    return str(rows[0][0]) if rows else None


def finish_tick(
    database: Database,
    result: ReapResult,
    *,
    scanned_to: str | None = None,
    full_scan_seconds: float | None = None,
) -> int:
    """Record a tick's counts and return how many expired leases are left to their workflows.

    Args:
        database: where the leases are.
        result: what the tick did.
        scanned_to: every lease that expires before this was looked at; None: as before.
        full_scan_seconds: what looking at all leases cost; None: this tick did not.
    """
    keys = sorted(result.counts)
    rows = database.execute(
        "finish_tick",
        {
            "released": result.released,
            "retried": result.retried,
            "dead_lettered": result.dead_lettered,
            "deferred": len(result.deferred),
            "job_types": [job_type for job_type, _ in keys],
            "dispositions": [disposition for _, disposition in keys],
            "totals": [result.counts[key] for key in keys],
            "scanned_to": scanned_to,
            "full_scan_seconds": full_scan_seconds,
            "free_seconds": FREE_SCAN_SECONDS,
            "skip_limit": SKIP_COUNT_LIMIT,
        },
        repeatable=False,
    )
    return int(rows[0][0])


def find_expired(database: Database, *, scan_from: str) -> BatchResult | None:
    """Return None if there are expired leases to take back, else the result of a batch of none."""
    rows = database.execute("find_expired", {"scan_from": scan_from})
    is_any, scanned_to, seconds = rows[0]
    return None if is_any else BatchResult(0, {}, (), True, scanned_to, seconds)


def reap_batch(
    session: Database | Transaction,
    *,
    batch_size: int,
    retry_delay_ms: int,
    scan_from: str = SCAN_ALL,
    job_ids: Sequence[str] | None = None,
) -> BatchResult:
    """Take back up to `batch_size` expired leases in one statement and one round trip.

    Raises:
        StoreError: nothing was changed; `is_poison` says that a row's contents are to blame.
    """
    rows = session.execute(
        "reap_batch",
        {
            "batch_size": batch_size,
            "retry_delay_ms": retry_delay_ms,
            "unheard_seconds": UNHEARD_SECONDS,
            "scan_from": scan_from,
            "job_ids": None if job_ids is None else list(job_ids),
        },
    )
    return _batch_result(rows, batch_size)


def pick_expired(
    transaction: Transaction, *, batch_size: int, scan_from: str
) -> list[tuple[str, int, int, str, str]]:
    """Lock expired leases; return (job_id, run_number, attempt, lease_expires_at, job_type)."""
    parameters = {"batch_size": batch_size, "scan_from": scan_from}
    rows = transaction.execute("pick_expired", parameters)
    return [
        (job_id, run, attempt, expiry, job_type) for job_id, run, attempt, expiry, job_type in rows
    ]


def defer_row(transaction: Transaction, row: DeferredRow, *, retry_delay_ms: int) -> None:
    """Set a poison row aside until `retry_delay_ms` have passed."""
    transaction.execute(
        "defer_row",
        {
            "job_id": row.job_id,
            "run_number": row.run_number,
            "attempt": row.attempt,
            "retry_delay_ms": retry_delay_ms,
            "sqlstate": row.sqlstate,
            "constraint_name": row.constraint,
        },
    )


def _batch_result(rows: Sequence[Row], batch_size: int) -> BatchResult:
    picked, scanned_to, seconds = 0, None, 0.0
    counts: dict[tuple[str, str], int] = {}
    terminal: list[TerminalRecord] = []
    for kind, job_type, count, hook_id, job_id, *identity, scanned, took in rows:
        if kind == "terminal":
            terminal.append(TerminalRecord(hook_id, job_id, job_type, *identity))
        elif kind == "picked":
            picked, scanned_to, seconds = count, scanned, took
        else:
            counts[job_type, kind] = count
    terminal.sort(key=lambda record: record.hook_id)
    return BatchResult(picked, counts, tuple(terminal), picked < batch_size, scanned_to, seconds)


def merge(parts: Sequence[BatchResult]) -> BatchResult:
    """Return the sum of the parts of one isolated batch; how far it got is the caller's to say."""
    counts: dict[tuple[str, str], int] = {}
    for part in parts:
        add_counts(counts, part.counts)
    return BatchResult(
        picked=sum(part.picked for part in parts),
        counts=counts,
        terminal=tuple(record for part in parts for record in part.terminal),
        drained=False,
        scanned_to=None,
        deferred=tuple(row for part in parts for row in part.deferred),
    )


def add_counts(totals: dict[tuple[str, str], int], more: Mapping[tuple[str, str], int]) -> None:
    """Add `more` to `totals` in place."""
    for key, count in more.items():
        totals[key] = totals.get(key, 0) + count
