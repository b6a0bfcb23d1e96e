"""Environment variables and celeryconfig values behind the settings, and how a bad one is told.

Knows the model it is given, no setting by name but the broker's. Must not import reaper.config.
"""

import os
from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel

from reaper.urls import mask_value

Model = type[BaseModel]

BROKER_VARIABLES = ("REAPER_BROKER_URL", "CELERY_BROKER_URL", "BROKER_URL")
"""Celery lets the second overrule any configuration, and its command line reads the third."""

_ONE_WAY_VARIABLES = ("CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")

_SHOWN_LIMIT = 300
"""Characters of a bad value in its error message."""


def variables_of(model: Model, field: str) -> tuple[str, ...]:
    """Return the environment variables that set `field`, the preferred one first."""
    alias = model.model_fields[field].validation_alias
    assert isinstance(alias, AliasChoices)  # noqa: S101 -- for the type checker: see _knob
    return tuple(str(choice) for choice in alias.choices)


def without_blanks() -> dict[str, str | None]:
    """Return the environment as settings see it: stripped, blank values left out."""
    return {name: value.strip() for name, value in os.environ.items() if value.strip()}


def is_set(value: object) -> bool:
    """Whether a celeryconfig value says anything: `os.environ.get(...)` may give None or ""."""
    return value is not None and not (isinstance(value, str) and not value.strip())


def not_overruled(model: Model, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known settings of `given` that no environment variable overrules."""
    return {k: v for k, v in given.items() if k in model.model_fields and not _variable(model, k)}


def _variable(model: Model, field: str) -> str | None:
    """The environment variable that sets `field`, if one does."""
    names = variables_of(model, field)
    return next((name for name in names if os.environ.get(name, "").strip()), None)


def allowed(model: Model, field: str) -> str:
    """Return what `field` takes, as the end of a sentence."""
    extra = model.model_fields[field].json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else ""


def unknown_names(model: Model, given: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each setting that `model` does not have."""
    known = ", ".join(f"reaper_{name}" for name in model.model_fields)
    return [
        f"reaper_{name} in celeryconfig.py is no setting of reaper; known: {known}"
        for name in sorted(given.keys() - model.model_fields.keys())
    ]


def broker_contradictions() -> list[str]:
    """Return one sentence for each variable that would lead Celery to another broker."""
    names = (*BROKER_VARIABLES, *_ONE_WAY_VARIABLES)
    values = {name: os.environ.get(name, "").strip() for name in names}
    named = [name for name, value in values.items() if value]
    if named and named[0] in _ONE_WAY_VARIABLES:
        return [f"{named[0]} is set without REAPER_BROKER_URL: set that, reaper has one broker"]
    return [
        f"{name}={mask_value(values[name])!r} contradicts {named[0]}="
        f"{mask_value(values[named[0]])!r}: unset one of them"
        for name in named[1:]
        if values[name] != values[named[0]]
    ]


def describe_fault(model: Model, error: dict[str, Any], given: Mapping[str, Any]) -> str:
    """One sentence for one validation error: variable, value (masked), what is allowed."""
    place = str(error["loc"][0])
    field = next(f for f in model.model_fields if place in {f, *variables_of(model, f)})
    variable = _variable(model, field)
    value = os.environ[variable].strip() if variable else given.get(field)
    own = field if field == "broker_url" else f"reaper_{field}"
    shown = variable or f"{own} in celeryconfig.py"
    reason = error.get("ctx", {}).get("error")
    why = f"{reason}; it takes" if isinstance(reason, ValueError) else "it takes"
    return f"{shown}={_shown(value)} is not allowed: {why} {allowed(model, field)}"


def _shown(value: object) -> str:
    """The value as one line of bounded length, without passwords."""
    masked = mask_value(value if isinstance(value, str) else repr(value))
    cut = masked if len(masked) <= _SHOWN_LIMIT else f"{masked[:_SHOWN_LIMIT]}..."
    return repr(cut) if isinstance(value, str) else cut
