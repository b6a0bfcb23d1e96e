"""The Celery app. `celery -A reaper ...` finds it here, by Celery's own convention.

Defaults live here; a `celeryconfig.py` on the path adds to them. Importing this module reads the
settings and stops the command with one line per fault if one is bad; it connects to nothing and
imports no handler.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import click
from celery import Celery
from celery.app.defaults import SETTING_KEYS
from kombu import Queue

from reaper.config import Settings
from reaper.errors import ConfigError

REAP_QUEUE = "reaper"
HOOK_QUEUE = "terminal-hooks"

REAP_TASK = "reaper.reap"
REDELIVER_TASK = "reaper.redeliver"
HOOK_TASK = "reaper.terminal_hook"

_OWN_TASKS = {REAP_TASK: REAP_QUEUE, REDELIVER_TASK: REAP_QUEUE, HOOK_TASK: HOOK_QUEUE}

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""Last run of a fresh beat's entries, so that the first reap comes at once as in the original."""

_BROKER_SECONDS = 30
"""Slack of the visibility timeout above hook and drain: a reconnect after a Redis restart."""


def hook_modules(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules named by Celery's `imports` and `include` in a celeryconfig.py.

    They are imported by hook workers only: a broken handler must not stop the reaping.
    """
    named: list[str] = []
    for key in ("imports", "include"):
        value = config.get(key) or ()
        named += [value] if isinstance(value, str) else list(value)
    return tuple(named)


def load_celeryconfig() -> tuple[dict[str, Any], str | None]:
    """Return the settings of the `celeryconfig.py` on the path, if there is one, and its path.

    Raises:
        ConfigError: it does not import, or holds a setting neither Celery nor reaper knows.
    """
    with _current_directory_first():
        spec = importlib.util.find_spec("celeryconfig")
        if spec is None:
            return {}, None
        try:
            module = importlib.import_module("celeryconfig")
        except Exception as error:
            raise ConfigError(
                f"celeryconfig.py ({spec.origin}) does not import: {type(error).__name__}: {error}"
            ) from error
    given = {
        key: value
        for key, value in vars(module).items()
        if key.islower() and not key.startswith("_") and not hasattr(value, "__spec__")
    }
    given = {k: v for k, v in given.items() if not callable(v)}
    for key in given:
        if key not in SETTING_KEYS and not key.startswith("reaper_"):
            raise ConfigError(
                f"{key} in celeryconfig.py ({spec.origin}) is a setting of neither Celery nor "
                "reaper; correct its name or take it out"
            )
    return given, spec.origin


def load_settings(given: Mapping[str, Any]) -> Settings:
    """Return reaper's settings; `REAPER_*` wins over a celeryconfig.py.

    Raises:
        ConfigError: one line for each fault.
    """
    own = {k.removeprefix("reaper_"): v for k, v in given.items() if k.startswith("reaper_")}
    if "broker_url" in given:
        own.setdefault("broker_url", given["broker_url"])
    return Settings.load(own)


def configuration(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return Celery's configuration: reaper's defaults, with a celeryconfig.py laid over them.

    Schedules and routes are merged by key. Queue, limits, acks and serializer of reaper's own tasks
    come from Settings and the tasks themselves.

    Raises:
        ConfigError: the celeryconfig.py contradicts what reaper's tasks need.
    """
    config = _defaults(settings)
    for key, value in given.items():
        if key.startswith("reaper_") or key in {"broker_url", "imports", "include"}:
            continue
        if key in {"beat_schedule", "broker_transport_options"}:
            config[key] = {**config[key], **value}
        elif key == "task_queues":
            config[key] = [*config[key], *value]
        elif key == "task_routes":
            config[key] = [config[key], *(value if isinstance(value, list | tuple) else [value])]
        else:
            config[key] = value
    _refuse_contradictions(config, given)
    return config


def _defaults(settings: Settings) -> dict[str, Any]:
    window = settings.hook_lease_seconds + settings.drain_window_seconds
    return {
        "broker_url": settings.broker_url.get_secret_value(),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
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
        "task_queues": [Queue(REAP_QUEUE), Queue(HOOK_QUEUE)],
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
        },
        "timezone": "UTC",
    }


def _every(task: str, seconds: float) -> dict[str, Any]:
    return {
        "task": task,
        "schedule": timedelta(seconds=seconds),
        "last_run_at": _LONG_AGO,
        "options": {"queue": _OWN_TASKS[task]},
    }


def _refuse_contradictions(config: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if "json" not in config["accept_content"]:
        raise ConfigError(
            f"accept_content={given['accept_content']!r} in celeryconfig.py shuts out reaper's own "
            "messages: it must hold 'json'"
        )
    own_routes = given.get("task_routes")
    for task, queue in _OWN_TASKS.items():
        route = own_routes.get(task) if isinstance(own_routes, Mapping) else None
        if route and route.get("queue", queue) != queue:
            raise ConfigError(
                f"task_routes in celeryconfig.py sends {task} to {route['queue']!r}: its queue is "
                f"{queue!r}, take the entry out"
            )
    for name, entry in config["beat_schedule"].items():
        task, options = entry.get("task"), entry.get("options") or {}
        if task in _OWN_TASKS and options.get("queue", _OWN_TASKS[task]) != _OWN_TASKS[task]:
            raise ConfigError(
                f"beat_schedule[{name!r}] in celeryconfig.py sends {task} to "
                f"{options['queue']!r}: its queue is {_OWN_TASKS[task]!r}"
            )


@contextmanager
def _current_directory_first() -> Iterator[None]:
    """Find a celeryconfig.py where the command was started, as Celery itself does."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _configured() -> tuple[Celery, Settings, tuple[str, ...], str | None]:
    given, path = load_celeryconfig()
    settings = load_settings(given)
    app = Celery("reaper", include=["reaper.tasks", "reaper.worker"])
    app.config_from_object(configuration(settings, given))
    return app, settings, (*settings.handlers, *hook_modules(given)), path


def one_line_each(error: ConfigError) -> str:
    """Return the faults as the lines a person sees."""
    return re.sub(r"^", "reaper: ", str(error), flags=re.MULTILINE)


try:
    app, settings, handler_modules, celeryconfig_path = _configured()
except ConfigError as error:
    # Under a command a bad setting ends the process with its lines and no traceback; importers get
    # the exception.
    if click.get_current_context(silent=True) is None:
        raise
    click.echo(one_line_each(error), err=True)
    sys.exit(2)
