"""The Celery app. `celery -A reaper ...` finds it here, by Celery's own convention.

Defaults live here; a `celeryconfig.py` on the path adds to them. Importing this module reads the
settings and stops the command with one line per fault if one is bad; it connects to nothing and
imports no handler.
"""

import re
import ssl
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, NoReturn

import click
from celery import Celery, signals
from celery.utils.log import ColorFormatter
from kombu import Queue

from reaper import contradictions, deployment, logs
from reaper.config import Settings
from reaper.errors import ConfigError

REAP_QUEUE = "reaper"
HOOK_QUEUE = "terminal-hooks"

REAP_TASK = "reaper.reap"
REDELIVER_TASK = "reaper.redeliver"
PRUNE_TASK = "reaper.prune"
HOOK_TASK = "reaper.terminal_hook"

_OWN_TASKS = {
    REAP_TASK: REAP_QUEUE,
    REDELIVER_TASK: REAP_QUEUE,
    PRUNE_TASK: REAP_QUEUE,
    HOOK_TASK: HOOK_QUEUE,
}

_DAY_SECONDS = 86_400.0

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""Last run of a fresh beat's entries, so that the first reap comes at once as in the original."""

_BROKER_SECONDS = 30
"""Slack of the visibility timeout above hook and drain: a reconnect after a Redis restart."""


def reap_limit_seconds(settings: Settings) -> float:
    """When a reap is killed.

    Its budget, a batch begun just before its end that is stuck (15 s) as is its first row (twice
    15 s), the budget anew, one more such row just before its end (twice 15 s), one publish (5 s).
    """
    return 2 * settings.tick_budget_seconds + 80


def configuration(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return Celery's configuration: reaper's defaults, with a celeryconfig.py laid over them.

    Queue, limits, acks and serializer of reaper's own tasks come from Settings and the tasks
    themselves.

    Raises:
        ConfigError: the celeryconfig.py contradicts what reaper's tasks need; one line each.
    """
    limit = reap_limit_seconds(settings)
    faults = contradictions.find(given, _OWN_TASKS, reap_limit_seconds=limit)
    if faults:
        raise ConfigError("\n".join(faults))
    return deployment.merge(_defaults(settings), given)


def _defaults(settings: Settings) -> dict[str, Any]:
    window = settings.hook_lease_seconds + settings.drain_window_seconds
    return {
        "broker_url": settings.broker_url.get_secret_value(),
        **_verified_tls(settings.broker_url.get_secret_value()),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "broker_transport_options": {
            "global_keyprefix": "reaper:",
            "visibility_timeout": max(60, ceil(window) + _BROKER_SECONDS),
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_keepalive": True,
            "socket_connect_timeout": 3,
            "socket_timeout": 10,
            "health_check_interval": 10,
        },
        "task_default_queue": REAP_QUEUE,
        "task_queues": [Queue(name, routing_key=name) for name in (REAP_QUEUE, HOOK_QUEUE)],
        "task_routes": {task: {"queue": queue} for task, queue in _OWN_TASKS.items()},
        "task_serializer": "json",
        "event_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_acks_on_failure": True,
        "task_acks_on_timeout": True,
        "task_reject_on_worker_lost": False,
        "task_publish_retry_policy": {
            "max_retries": 2,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 0.5,
        },
        "worker_consumer": "reaper.worker.consumer:LastingConsumer",
        "worker_concurrency": settings.hook_concurrency,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_proc_alive_timeout": 10,
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_enable_remote_control": True,
        "beat_schedule": {
            REAP_TASK: _every(REAP_TASK, settings.interval_seconds),
            REDELIVER_TASK: _every(REDELIVER_TASK, settings.redelivery_seconds),
            PRUNE_TASK: _every(PRUNE_TASK, _DAY_SECONDS),
        },
        "timezone": "UTC",
    }


def _verified_tls(broker_url: str) -> dict[str, Any]:
    """Ask for the server's certificate where Celery would take any: rediss:// without ssl_*."""
    if broker_url.startswith("rediss://") and "ssl_" not in broker_url:
        return {"broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED}}
    return {}


def _every(task: str, seconds: float) -> dict[str, Any]:
    return {
        "task": task,
        "schedule": timedelta(seconds=seconds),
        "last_run_at": _LONG_AGO,
        "options": {"queue": _OWN_TASKS[task]},
    }


def one_line_each(error: ConfigError) -> str:
    """Return the faults as the lines a person sees."""
    return re.sub(r"^", "reaper: ", str(error), flags=re.MULTILINE)


def refuse_start(lines: str) -> NoReturn:
    """End a beat or a worker from a signal handler: Celery logs any other exception and goes on."""
    sys.stderr.write(lines + "\n")
    sys.stderr.flush()
    raise SystemExit(1) from None


def _configured() -> tuple[Celery, Settings, tuple[str, ...], str | None]:
    """Read everything, and report the faults of everything at once."""
    given, path = deployment.load_celeryconfig()
    try:
        settings = deployment.load_settings(given)
    except ConfigError as error:
        more = contradictions.find(given, _OWN_TASKS, reap_limit_seconds=0)
        raise ConfigError("\n".join([str(error), *more])) from None
    app = Celery(
        "reaper", include=["reaper.tasks", "reaper.worker", "reaper.answers", "reaper.beat"]
    )
    app.config_from_object(configuration(settings, given))
    return app, settings, (*settings.handlers, *deployment.hook_modules(given)), path


def _without_banner(beat: Any) -> Any:
    """The beat's class, told to print nothing but log lines."""

    class QuietBeat(beat):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "quiet": True})

    return QuietBeat


_command = click.get_current_context(silent=True)
"""The command this module is imported under, if any."""

try:
    app, settings, handler_modules, celeryconfig_path = _configured()
except ConfigError as error:
    # Under a command a bad setting ends the process with its lines and no traceback; importers get
    # the exception.
    if _command is None:
        raise
    click.echo(one_line_each(error), err=True)
    sys.exit(2)


if _command is not None:
    # Celery's own default, WARNING, hides what became of each hook; an idle system logs nothing.
    _command.default_map = {name: {"loglevel": "INFO"} for name in ("worker", "beat")}

if settings.log_format == "json":
    vars(app)["Beat"] = _without_banner(app.Beat)  # a cached property of Celery


@signals.worker_init.connect
def leave_out_banner(sender: Any, **_: Any) -> None:
    """Print nothing but log lines where they are read by a program."""
    if settings.log_format == "json":
        sender.quiet = True


@signals.after_setup_logger.connect
@signals.after_setup_task_logger.connect
def format_logs(logger: Any, **_: Any) -> None:
    """Give the handlers Celery made reaper's format; handlers of the deployment keep theirs."""
    for handler in logger.handlers:
        if isinstance(handler.formatter, ColorFormatter):
            handler.setFormatter(logs.formatter(settings.log_format))
    logs.leave_out(_OWN_TASKS, HOOK_TASK)
