"""The Celery tasks: each hands over to a plain function and turns its failure into one line."""

from contextlib import suppress
from functools import cache
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from kombu.exceptions import OperationalError

from reaper import reap as reaping
from reaper import telemetry
from reaper.celery import (
    HOOK_QUEUE,
    HOOK_TASK,
    PRUNE_TASK,
    REAP_QUEUE,
    REAP_TASK,
    REDELIVER_TASK,
    app,
    reap_limit_seconds,
    settings,
)
from reaper.errors import StoreError
from reaper.hooks import HookRunner
from reaper.jobs import HookState
from reaper.operations import pruning
from reaper.publishing import Doorbell
from reaper.registry import registry
from reaper.store import Database
from reaper.worker import handler_limits, hook_signals, process

PRUNE_SECONDS = 5.0
"""How long one pruning may keep the reap worker from its ticks; it goes on behind them."""


class ReapFailed(Exception):  # noqa: N818 -- what Flower shows
    """A tick, a redelivery or a pruning failed; the next one goes on."""


class HookFailed(Exception):  # noqa: N818 -- what Flower shows
    """A hook failed or timed out; the text is the exception's type, the ledger has the rest."""


_TICK: dict[str, Any] = {
    "queue": REAP_QUEUE,
    "time_limit": reap_limit_seconds(settings),
    "throws": (ReapFailed,),
    "acks_late": False,
}

_HOOK: dict[str, Any] = {
    "queue": HOOK_QUEUE,
    "soft_time_limit": settings.hook_timeout_seconds,
    "time_limit": settings.hook_hard_limit_seconds,
    "acks_late": True,
    "acks_on_failure": True,
    "acks_on_timeout": True,
    "reject_on_worker_lost": False,
    "serializer": "json",
    "throws": (HookFailed,),
    "Request": "reaper.worker:HookRequest",
}

doorbell = Doorbell(app)


@cache
def database() -> Database:
    """Return this process's database; the connection itself is opened after the fork."""
    return Database(settings.require_database_url(), application_name="reaper")


@app.task(name=REAP_TASK, **_TICK)
def reap() -> None:
    """Run one tick."""
    try:
        reaping.run_tick(database(), settings, doorbell.publish)
    except StoreError as error:
        telemetry.reap_failed(
            error, batch_size=settings.claim_batch_size, retry_delay_ms=settings.retry_delay_ms
        )
        raise ReapFailed(str(error)) from None


@app.task(name=REDELIVER_TASK, **_TICK)
def redeliver() -> None:
    """Ring again for hooks whose message or worker was lost; count those that have finished."""
    try:
        reaping.redeliver(database(), settings, doorbell.publish, doorbell.count_messages)
        pruning.roll_up(database())
    except StoreError as error:
        telemetry.redelivery_failed(error)
        raise ReapFailed(str(error)) from None


@app.task(name=PRUNE_TASK, **_TICK)
def prune() -> None:
    """Delete old finished ledger rows for a while; with more left, queue up behind the ticks."""
    try:
        result = pruning.prune(
            database(),
            retention_days=settings.retention_days,
            budget_seconds=min(settings.tick_budget_seconds, PRUNE_SECONDS),
        )
    except StoreError as error:
        telemetry.prune_failed(error)
        raise ReapFailed(str(error)) from None
    telemetry.ledger_pruned(result.pruned)
    if not result.is_done:
        with suppress(OperationalError):  # the broker is away: tomorrow's goes on
            prune.delay()


@app.task(name=HOOK_TASK, **_HOOK)
def terminal_hook(hook_id: int, try_number: int) -> None:
    """Run one hook: the message is only its key and the try it was sent for."""
    if process.controller is not None and not process.runs_hooks:
        raise HookFailed(f"not a hook worker; redelivery rings on {HOOK_QUEUE}")  # no handlers here
    try:
        with hook_signals():
            outcome = _runner().run(hook_id, try_number)
    except StoreError as error:
        raise HookFailed(str(error)) from None
    if outcome.state in {HookState.FAILED, HookState.TIMED_OUT}:
        raise HookFailed(outcome.error_type) from None


@cache
def _runner() -> HookRunner:
    return HookRunner(
        database=database(),
        registry=registry,
        settings=settings,
        worker=process.identity(),
        guard=handler_limits,
        soft_limit=SoftTimeLimitExceeded,
    )
