"""The statements of the reap: one function each, named like its file in reaper/sql."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from reaper.errors import StoreError
from reaper.jobs import BatchResult, DeferredRow, ReapResult, TerminalRecord
from reaper.store.connection import Database, Row, Transaction

UNHEARD_SECONDS = 30.0
"""A doorbell unanswered for this long is rung again: above any healthy queue's wait, and what a
lost message costs at most (plus one redelivery interval)."""

SKIP_COUNT_LIMIT = 10_000
"""Skipped rows are counted up to here, so that a tick stays cheap beside a million of them."""


def begin_tick(database: Database, *, quiet_seconds: float) -> bool:
    """Return whether this tick may go on; False if another began within `quiet_seconds`."""
    return bool(database.execute("begin_tick", {"quiet_seconds": quiet_seconds}))


def finish_tick(database: Database, result: ReapResult) -> int:
    """Record a tick's counts and return how many expired leases it left to their workflows."""
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
            "skip_limit": SKIP_COUNT_LIMIT,
        },
        repeatable=False,
    )
    return int(rows[0][0])


def reap_batch(
    session: Database | Transaction,
    *,
    batch_size: int,
    retry_delay_ms: int,
    scan_from: datetime | None = None,
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
            "scan_from": scan_from or "-infinity",
            "job_ids": None if job_ids is None else list(job_ids),
        },
    )
    return _batch_result(rows)


def pick_expired(
    transaction: Transaction, *, batch_size: int, scan_from: datetime | None
) -> list[tuple[str, int, int, datetime]]:
    """Lock expired leases and return (job_id, run_number, attempt, lease_expires_at) of each."""
    parameters = {"batch_size": batch_size, "scan_from": scan_from or "-infinity"}
    return [
        (str(job_id), run_number, attempt, expiry)
        for job_id, run_number, attempt, expiry in transaction.execute("pick_expired", parameters)
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


def _batch_result(rows: Sequence[Row]) -> BatchResult:
    picked, resume_from = 0, None
    counts: dict[tuple[str, str], int] = {}
    terminal: list[TerminalRecord] = []
    for kind, job_type, count, hook_id, job_id, organization_id, run_number, attempt, at in rows:
        if kind == "terminal":
            terminal.append(
                TerminalRecord(hook_id, job_id, job_type, organization_id, run_number, attempt)
            )
        elif kind == "picked":
            picked, resume_from = count, at
        else:
            counts[job_type, kind] = count
    terminal.sort(key=lambda record: record.hook_id)
    return BatchResult(picked, counts, tuple(terminal), resume_from)


def merge(parts: Sequence[BatchResult]) -> BatchResult:
    """Return the sum of several results of one isolated batch."""
    counts: dict[tuple[str, str], int] = {}
    for part in parts:
        add_counts(counts, part.counts)
    return BatchResult(
        picked=sum(part.picked for part in parts),
        counts=counts,
        terminal=tuple(record for part in parts for record in part.terminal),
        resume_from=None,
        deferred=tuple(row for part in parts for row in part.deferred),
    )


def add_counts(totals: dict[tuple[str, str], int], more: Mapping[tuple[str, str], int]) -> None:
    """Add `more` to `totals` in place."""
    for key, count in more.items():
        totals[key] = totals.get(key, 0) + count


__all__ = [
    "StoreError",
    "add_counts",
    "begin_tick",
    "defer_row",
    "finish_tick",
    "merge",
    "pick_expired",
    "reap_batch",
]
