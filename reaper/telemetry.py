"""Every log event with its fields. No payloads, no secrets, no exception texts of handlers.

One function per event: its name is the event's name. Imports no server client and no Celery.
"""

import json
import logging
from typing import Any

from reaper.jobs import DeferredRow, ReapResult
from reaper.store.ledger import ClaimedHook, LedgerEvent

log = logging.getLogger("reaper")

_VALUE_LIMIT = 1_000
"""Characters of one value in a text line: an error names its cure, a job type may be anything."""

_process: dict[str, str] = {}
"""Who writes: added to every line about a job. Set before the pool forks."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+")


def set_worker(name: str) -> None:
    """Say which worker process this is, as in the ledger's `claimed_by`."""
    _process["worker"] = name


def tick_finished(result: ReapResult) -> None:
    """Log a tick's counts, only when something happened."""
    if result.processed or result.deferred:
        _emit(
            logging.INFO,
            "tick_finished",
            processed=result.processed,
            released=result.released,
            retried=result.retried,
            dead_lettered=result.dead_lettered,
            published=result.published,
            deferred=len(result.deferred),
            skipped=result.skipped,
            batches=result.batches,
        )


def reap_failed(error: Exception, *, batch_size: int, retry_delay_ms: int) -> None:
    """Log that a tick failed; the next one goes on."""
    _emit(
        logging.ERROR,
        "reap_failed",
        batch_size=batch_size,
        retry_delay_ms=retry_delay_ms,
        error=str(error),
    )


def redelivery_failed(error: Exception) -> None:
    """Log that a redelivery failed; the next one goes on."""
    _emit(logging.ERROR, "redelivery_failed", error=str(error))


def prune_failed(error: Exception) -> None:
    """Log that pruning the ledger failed; the next one goes on."""
    _emit(logging.ERROR, "prune_failed", error=str(error))


def ledger_pruned(rows: int) -> None:
    """Log how many finished ledger rows were deleted, only when there were any."""
    if rows:
        _emit(logging.INFO, "ledger_pruned", rows=rows)


def row_deferred(row: DeferredRow) -> None:
    """Log a poison row that was set aside."""
    _emit(
        logging.ERROR,
        "row_deferred",
        job_id=row.job_id,
        job_type=row.job_type,
        run_number=row.run_number,
        attempt=row.attempt,
        **_process,
        sqlstate=row.sqlstate,
        constraint=row.constraint,
    )


def batch_stuck(error: Exception, *, batch_size: int) -> None:
    """Log a batch that was undone because it took too long; its tick goes on row by row."""
    _emit(
        logging.WARNING,
        "batch_stuck",
        batch_size=batch_size,
        error=str(error),
        cure="lower REAPER_CLAIM_BATCH_SIZE if the tables' triggers are slow",
    )


def publish_failed(kind: str, count: int) -> None:
    """Log that doorbells were not sent, or perhaps not; redelivery rings for them."""
    _emit(logging.WARNING, "publish_failed", error=kind, hooks=count)


def hooks_redelivered(count: int) -> None:
    """Log that doorbells rang again."""
    _emit(logging.INFO, "hooks_redelivered", hooks=count)


def hook_worker_lost(event: LedgerEvent, *, final: bool) -> None:
    """Log a hook whose worker died with it."""
    _emit(logging.WARNING, "hook_worker_lost", **_of(event), crashes=event.crashes, final=final)


def hook_started(claimed: ClaimedHook) -> None:
    """Log that a handler is about to be called."""
    _emit(logging.DEBUG, "hook_started", **_of_claim(claimed))


def hook_throttled(hook_id: int) -> None:
    """Log that a hook waits because its job type's hooks time out."""
    _emit(logging.DEBUG, "hook_throttled", hook_id=hook_id, **_process)


def hook_completed(claimed: ClaimedHook, *, seconds: float) -> None:
    """Log a handler that returned."""
    _emit(logging.INFO, "hook_completed", **_of_claim(claimed), ms=round(seconds * 1000))


def hook_failed(claimed: ClaimedHook, *, error_type: str, again: bool) -> None:
    """Log a handler that raised. Its text stays in the ledger: it may hold a payload."""
    _emit(logging.WARNING, "hook_failed", **_of_claim(claimed), error_type=error_type, again=again)


def hook_timed_out(hook_id: int, event: LedgerEvent | None, *, timeout_seconds: float) -> None:
    """Log a handler that ran into its time limit."""
    _emit(
        logging.WARNING,
        "hook_timed_out",
        **(_of(event) if event else {"hook_id": hook_id, **_process}),
        timeout_ms=round(timeout_seconds * 1000),
    )


def hook_unhandled(job_type: str) -> None:
    """Log, once per type and process, that no handler is registered for it."""
    _emit(logging.WARNING, "hook_unhandled", job_type=job_type)


def outcome_unrecorded(claimed: ClaimedHook, error: Exception) -> None:
    """Log an outcome PostgreSQL could not take: this hook will run again."""
    _emit(logging.ERROR, "outcome_unrecorded", **_of_claim(claimed), error=str(error))


def hard_limit_unrecorded(hook_id: int, about: str, error: str) -> None:
    """Log a kill the worker could not record; the hook is released as lost when it is due.

    The job is known from the message alone: `about` is what Flower shows of it.
    """
    fields = {"hook_id": hook_id, "about": about or None, "error": error}
    _emit(logging.WARNING, "hard_limit_unrecorded", **fields, **_process)


def drain_cut_off(hooks: int | None, *, window_seconds: float, error: str | None = None) -> None:
    """Log that a shutdown ended hooks that were still running; they will run again.

    `hooks` None: PostgreSQL failed, they are released as lost when they are due.
    """
    _emit(logging.WARNING, "drain_cut_off", hooks=hooks, window_seconds=window_seconds, error=error)


def worker_configured(**fields: Any) -> None:
    """Log what a worker enforces."""
    _emit(logging.INFO, "worker_configured", **fields)


def all_in_one_worker() -> None:
    """Warn that hooks and reaps share one pool."""
    _emit(
        logging.WARNING,
        "all_in_one_worker",
        why="eight hanging hooks would hold up the reap; in production run `celery -A reaper "
        "worker -Q reaper -c 1` beside `celery -A reaper worker -Q terminal-hooks`",
    )


def config_found(path: str) -> None:
    """Log which celeryconfig.py is in force."""
    _emit(logging.INFO, "celeryconfig_found", path=path)


def _of(event: LedgerEvent) -> dict[str, Any]:
    return {
        "hook_id": event.hook_id,
        "job_id": event.job_id,
        "job_type": event.job_type,
        "run_number": event.run_number,
        "attempt": event.attempt,
        **_process,
    }


def _of_claim(claimed: ClaimedHook) -> dict[str, Any]:
    context = claimed.context
    return {
        "hook_id": claimed.hook.hook_id,
        "try": claimed.hook.try_number,
        "job_id": context.job_id,
        "job_type": context.job_type,
        "run_number": context.run_number,
        "attempt": context.attempt,
        "lease_owner": context.lease_owner,
        **_process,
    }


def _emit(level: int, event: str, **fields: Any) -> None:
    if not log.isEnabledFor(level):
        return
    shown = {key: value for key, value in fields.items() if value is not None}
    text = " ".join([event, *(f"{key}={_plain(value)}" for key, value in shown.items())])
    log.log(level, "%s", text, extra={"event": event, "fields": shown})


def _plain(value: object) -> str:
    """The value on one line, quoted where a blank or a control character would mislead."""
    text = str(value)
    if len(text) > _VALUE_LIMIT:
        text = f"{text[:_VALUE_LIMIT]}..."
    return text if text and set(text) <= _PLAIN else json.dumps(text)
