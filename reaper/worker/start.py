"""What a worker checks and sets before its pool is made: settings, servers, handlers, the cap."""

import gc
import logging
from typing import Any

from celery import concurrency, signals
from celery.concurrency.prefork import TaskPool as PreforkPool

from reaper import broker, telemetry
from reaper.celery import (
    HOOK_QUEUE,
    REAP_QUEUE,
    app,
    celeryconfig_path,
    handler_modules,
    one_line_each,
    refuse_start,
    settings,
)
from reaper.errors import ConfigError, ReaperError, StoreError
from reaper.registry import load_handlers, registry
from reaper.store import Database, schema
from reaper.worker.process import process


@signals.worker_init.connect
def check_worker(sender: Any, **_: Any) -> None:
    """Check settings, database and handlers, and set the cap, before the pool is made.

    1. The database is reachable and has this version of the schema.
    2. The broker is reachable.
    3. A hook worker is prefork, at most eight wide, and its handlers import.

    Ends the process with one line where something is missing.
    """
    queues = process.adopt(sender)
    telemetry.set_worker(process.name)
    if not queues & {REAP_QUEUE, HOOK_QUEUE}:
        return
    try:
        _check(sender)
    except ReaperError as error:
        refuse_start(one_line_each(ConfigError(str(error))))
    except Exception as error:
        # Celery would log it and start the worker all the same, unchecked and uncapped.
        logging.getLogger("reaper").exception("the worker's checks failed")
        refuse_start(f"reaper: the worker's checks failed: {type(error).__name__}")


@signals.celeryd_after_setup.connect
def tell_setup(instance: Any, **_: Any) -> None:
    """Log what the worker enforces, now that Celery has set up the logs."""
    queues = set(instance.app.amqp.queues.consume_from)
    if not queues & {REAP_QUEUE, HOOK_QUEUE}:
        return
    if celeryconfig_path:
        telemetry.config_found(celeryconfig_path)
    if process.runs_hooks:
        telemetry.worker_configured(
            hooks_at_once=instance.concurrency,
            hook_timeout_seconds=settings.hook_timeout_seconds,
            drain_seconds=settings.drain_window_seconds,
            handlers=",".join(registry.job_types()) or "none",
        )
    if queues >= {REAP_QUEUE, HOOK_QUEUE}:
        telemetry.all_in_one_worker()


@signals.worker_before_create_process.connect
def share_memory(**_: Any) -> None:
    """Before the first fork, take what is loaded out of the garbage collector's sight.

    The collector writes into every object it looks at; in the children each such page would become
    a copy of their own. Once: a later fork would find the parent's running state among it.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _check(worker: Any) -> None:
    _check_database()
    broker.check_reachable(app)
    if process.runs_hooks:
        _enforce_cap(worker)
        load_handlers(handler_modules)


def _check_database() -> None:
    database = Database(settings.require_database_url(), application_name="reaper")
    try:
        schema.check(database)
    except StoreError as error:
        if error.sqlstate is None:
            raise ConfigError(f"REAPER_DATABASE_URL: {error}") from None
        raise
    finally:
        database.close()


def _enforce_cap(worker: Any) -> None:
    """At most eight hooks at once, whatever -c, --autoscale and -P say."""
    pool = concurrency.get_implementation(worker.pool_cls)
    if not issubclass(pool, PreforkPool):
        raise ConfigError(
            f"-P {pool.__module__.rpartition('.')[2]} is not allowed on a worker that consumes "
            f"{HOOK_QUEUE}: only prefork keeps the hooks' time limits; leave -P and worker_pool out"
        )
    if worker.pool_start_method != "fork":
        raise ConfigError(
            f"worker_pool_start_method={worker.pool_start_method!r} is not allowed on a worker "
            f"that consumes {HOOK_QUEUE}: its children get the handlers by fork; leave it out"
        )
    cap = settings.hook_concurrency
    asked = worker.concurrency
    worker.concurrency = min(asked, cap) if isinstance(asked, int) else cap  # it may be "auto"
    autoscale = worker.options.get("autoscale")
    if autoscale:
        most, least = _autoscale(autoscale)
        worker.options["autoscale"] = [min(most, cap), min(least, cap)]


def _autoscale(value: Any) -> tuple[int, int]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    most = int(parts[0])
    return most, int(parts[1]) if len(parts) > 1 else 0
