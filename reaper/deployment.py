"""The celeryconfig.py of a deployment: found, read, checked and laid over reaper's defaults.

Reads the file and returns values; makes no app and connects to nothing.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from celery.app import defaults
from kombu import Queue

from reaper.config import Settings
from reaper.errors import ConfigError
from reaper.urls import mask

_HANDLED_APART = {"broker_url", "imports", "include"}


def load_celeryconfig() -> tuple[dict[str, Any], str | None]:
    """Return the settings of the `celeryconfig.py` on the path, if there is one, and its path.

    Modules, functions and classes are taken for what the file needs itself, unless they are the
    value of a setting. So are names that begin with `_` or are not lower case.

    Raises:
        ConfigError: it does not import, or holds settings neither Celery nor reaper knows.
    """
    with _current_directory_first():
        spec = importlib.util.find_spec("celeryconfig")
        if spec is None:
            return {}, None
        try:
            module = importlib.import_module("celeryconfig")
        # The file is the deployment's own code: it may raise anything, sys.exit() included.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            said = mask(str(error).strip().partition("\n")[0])
            raise ConfigError(
                f"celeryconfig.py ({spec.origin}) does not import: {type(error).__name__}: {said}"
            ) from None
    found = vars(module)
    given = {key: value for key, value in found.items() if _is_setting(key)}
    faults = [
        f"{key} in celeryconfig.py ({spec.origin}) is {why}"
        for key, value in found.items()
        if (why := _misnamed(key, value))
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return given, spec.origin


def load_settings(given: Mapping[str, Any]) -> Settings:
    """Return reaper's settings; `REAPER_*` wins over a celeryconfig.py.

    Raises:
        ConfigError: one line for each fault.
    """
    own = {k.removeprefix("reaper_"): v for k, v in given.items() if k.startswith("reaper_")}
    broker = given.get("broker_url")
    if broker:
        own["broker_url"] = ";".join(broker) if isinstance(broker, list | tuple) else broker
    return Settings.load(own)


def hook_modules(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules named by Celery's `imports` and `include` in a celeryconfig.py.

    They are imported by hook workers only: a broken handler must not stop the reaping.
    """
    named: list[str] = []
    for key in ("imports", "include"):
        value = given.get(key) or ()
        named += [value] if isinstance(value, str) else list(value)
    return tuple(named)


def merge(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `own` with a celeryconfig.py's settings laid over them.

    Schedules, routes and transport options are merged by key, queues are added; reaper's own routes
    come first.
    """
    config = dict(own)
    for key, value in given.items():
        if key.startswith("reaper_") or key in _HANDLED_APART or value is None:
            continue
        if key in {"beat_schedule", "broker_transport_options"}:
            config[key] = {**config[key], **value}
        elif key == "task_queues":
            config[key] = [*config[key], *_as_queues(value)]
        elif key == "task_routes":
            more = value if isinstance(value, list | tuple) else [value]
            config[key] = [config[key], *more]
        else:
            config[key] = value
    return config


def _as_queues(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [Queue.from_dict(name, **(options or {})) for name, options in value.items()]
    return list(value)


def _is_setting(key: str) -> bool:
    return key in defaults.SETTING_KEYS or key.startswith("reaper_")


def _misnamed(key: str, value: object) -> str | None:
    """Why `key` is a setting that nobody would read, or None."""
    new_names: Mapping[str, str] = getattr(defaults, "_TO_NEW_KEY", {})  # Celery's, not public
    if key in new_names:
        return f"an old name: write {new_names[key]}"
    if key.startswith("REAPER_"):
        return f"read from the environment only: write {key.lower()} here"
    is_own_business = not key.islower() or key.startswith("_")
    if is_own_business or _is_setting(key) or inspect.ismodule(value) or callable(value):
        return None
    return (
        "a setting of neither Celery nor reaper: correct its name, or begin it with _ if the file "
        "needs it itself"
    )


@contextmanager
def _current_directory_first() -> Iterator[None]:
    """Find a celeryconfig.py where the command was started, as Celery itself does."""
    try:
        here = os.getcwd()  # noqa: PTH109 -- sys.path holds strings
    except FileNotFoundError:  # the directory was deleted: there is no file in it either
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(here)
