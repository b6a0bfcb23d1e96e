"""The settings: every knob, from the environment, validated once at start. Imports no server client.

Precedence: `REAPER_*` (and its `JOBS_*` alias) > `reaper_*` in a celeryconfig.py > the default.
The original silently fell back to a default on a bad value, which hides typos; here every fault is
reported, all at once, and the process does not start.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from kombu.transport import TRANSPORT_ALIASES
from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from reaper.errors import ConfigError

MAX_HOOK_CONCURRENCY = 8
"""Terminal hooks that may run at once in one worker process, the original's constant."""

KILL_SECONDS_EACH = 0.1
"""Celery kills hung children one after another, this far apart (docs/architecture.md, limits)."""

TICK_BUDGET_MAX_SECONDS = 20.0
"""A tick stops draining after min(interval, this), so that a warm shutdown never waits long."""

REDELIVERY_MAX_SECONDS = 5.0
"""Redelivery looks for lost doorbells every min(interval, this)."""

_PASSWORD_IN_URL = re.compile(r"(://[^/@\s:]*:)[^@\s]*(@)")
_PASSWORD_IN_DSN = re.compile(r"((?:password|passfile|sslpassword)\s*=\s*)('[^']*'|[^\s&]+)", re.I)
_POSTGRES_URL = re.compile(r"^postgres(ql)?://", re.I)
_POSTGRES_DSN = re.compile(r"^\s*\w+\s*=")


def mask(text: str) -> str:
    """Return `text` with the passwords of every URL and DSN in it replaced by `***`."""
    return _PASSWORD_IN_DSN.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1***\2", text))


def _knob(default: Any, allowed: str, *aliases: str, **limits: Any) -> Any:
    """A field whose `allowed` text completes the sentence of its error message."""
    names = AliasChoices(*aliases) if aliases else None
    return Field(default, validation_alias=names, json_schema_extra={"allowed": allowed}, **limits)


class Settings(BaseSettings):
    """Every setting, frozen. docs/operations.md says what breaks when one is too low or too high.

    Seconds may be fractions. `drain_seconds` None means: derived, see `drain_window_seconds`.
    """

    model_config = SettingsConfigDict(
        env_prefix="REAPER_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = _knob(
        None, "a PostgreSQL URL (postgresql://user@host/name) or a libpq DSN (host=... dbname=...)"
    )
    broker_url: SecretStr = _knob(
        SecretStr("redis://127.0.0.1:6379/0"), "a broker URL Celery knows, such as redis://host/0"
    )
    interval_seconds: float = _knob(
        15.0,
        "seconds between two reaps, at least 0.1",
        "REAPER_INTERVAL_SECONDS",
        "JOBS_REAPER_INTERVAL_SECONDS",
        ge=0.1,
        le=86_400,
        allow_inf_nan=False,
    )
    claim_batch_size: int = _knob(
        500,
        "leases per statement, a whole number from 1 to 10000",
        "REAPER_CLAIM_BATCH_SIZE",
        "JOBS_CLAIM_BATCH_SIZE",
        ge=1,
        le=10_000,
    )
    retry_delay_ms: int = _knob(
        30_000,
        "milliseconds until a reaped job may run again, a whole number of at least 1",
        "REAPER_RETRY_DELAY_MS",
        "JOBS_REAPER_RETRY_DELAY_MS",
        ge=1,
        le=2_147_483_647,
    )
    hook_timeout_seconds: float = _knob(
        10.0,
        "seconds a hook may run before its soft limit, from 0.1 to 3600",
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
    )
    hook_kill_grace_seconds: float = _knob(
        2.0,
        "seconds from a hook's soft limit to its kill, from 0.1 to 600",
        ge=0.1,
        le=600,
        allow_inf_nan=False,
    )
    hook_concurrency: int = _knob(
        MAX_HOOK_CONCURRENCY,
        "hooks at once in one worker, a whole number from 1 to 8",
        ge=1,
        le=MAX_HOOK_CONCURRENCY,
    )
    hook_max_crashes: int = _knob(
        3, "how often a hook may lose its worker, a whole number from 1 to 100", ge=1, le=100
    )
    drain_seconds: float | None = _knob(
        None,
        "seconds a warm shutdown waits for running hooks, from 0 to 7200",
        ge=0,
        le=7200,
        allow_inf_nan=False,
    )
    retention_days: float = _knob(
        30.0,
        "days a finished ledger row is kept, above 0",
        gt=0,
        le=36_500,
        allow_inf_nan=False,
    )
    log_format: Literal["text", "json"] = _knob("text", "text or json")
    handlers: Annotated[tuple[str, ...], NoDecode] = _knob(
        (), "importable module names, separated by commas"
    )

    @field_validator("handlers", mode="before")
    @classmethod
    def _split_modules(cls, value: object) -> object:
        names = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
        if not isinstance(names, list | tuple):
            return names
        for name in filter(None, names):
            if not all(part.isidentifier() for part in str(name).split(".")):
                raise ValueError(name)
        return tuple(filter(None, names))

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value() if value else "postgresql://"
        if not (_POSTGRES_URL.match(text) or _POSTGRES_DSN.match(text)):
            raise ValueError(text)
        return value

    @field_validator("broker_url")
    @classmethod
    def _is_broker(cls, value: SecretStr) -> SecretStr:
        scheme, colon, _ = value.get_secret_value().partition("://")
        if not colon or scheme.split("+")[0] not in TRANSPORT_ALIASES:
            raise ValueError(scheme)
        return value

    @classmethod
    def load(cls, celeryconfig: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of this process.

        Args:
            celeryconfig: `reaper_*` values from a celeryconfig.py, without the prefix.

        Raises:
            ConfigError: one line for each fault: the variable, its value (secrets masked) and
                what is allowed.
        """
        given = {k: v for k, v in (celeryconfig or {}).items() if not _in_environment(cls, k)}
        unknown = sorted(given.keys() - cls.model_fields.keys())
        if unknown:
            known = ", ".join(f"reaper_{name}" for name in cls.model_fields)
            raise ConfigError(
                f"reaper_{unknown[0]} in celeryconfig.py is no setting of reaper; known: {known}"
            )
        try:
            return cls(**given)
        except ValidationError as error:
            faults = [_fault(cls, dict(e), given) for e in error.errors(include_url=False)]
            raise ConfigError("\n".join(dict.fromkeys(faults))) from None

    @property
    def hook_hard_limit_seconds(self) -> float:
        """When a hook is killed, counted from its start."""
        return self.hook_timeout_seconds + self.hook_kill_grace_seconds

    @property
    def hook_lease_seconds(self) -> float:
        """When a running hook counts as lost: hard limit, the serial kills, and 1 s of slack."""
        return self.hook_hard_limit_seconds + KILL_SECONDS_EACH * self.hook_concurrency + 1.0

    @property
    def drain_window_seconds(self) -> float:
        """How long a warm shutdown waits; by default any running hook fits in it."""
        return self.hook_lease_seconds if self.drain_seconds is None else self.drain_seconds

    @property
    def tick_budget_seconds(self) -> float:
        """How long one tick may go on draining."""
        return min(self.interval_seconds, TICK_BUDGET_MAX_SECONDS)

    @property
    def redelivery_seconds(self) -> float:
        """How often lost doorbells are looked for."""
        return min(self.interval_seconds, REDELIVERY_MAX_SECONDS)

    def require_database_url(self) -> str:
        """Return the database URL in clear.

        Raises:
            ConfigError: it is not set.
        """
        if self.database_url is None:
            raise ConfigError(
                "REAPER_DATABASE_URL is not set; give it "
                f"{_allowed(type(self), 'database_url')}, "
                "or run `reaper up` for servers of its own"
            )
        return self.database_url.get_secret_value()


def environment_names(model: type[Settings], field: str) -> tuple[str, ...]:
    """Return the environment variables that set `field`, the preferred one first."""
    alias = model.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (f"REAPER_{field.upper()}",)


def _in_environment(model: type[Settings], field: str) -> bool:
    if field not in model.model_fields:
        return False
    return any(os.environ.get(name) for name in environment_names(model, field))


def _allowed(model: type[Settings], field: str) -> str:
    extra = model.model_fields[field].json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else ""


def _fault(model: type[Settings], error: dict[str, Any], given: Mapping[str, Any]) -> str:
    """One sentence for one validation error: variable, value (masked), what is allowed."""
    place = str(error["loc"][0])
    field = next(f for f in model.model_fields if place in {f, *environment_names(model, f)})
    names = environment_names(model, field)
    name = next((n for n in names if os.environ.get(n)), None)
    value = os.environ[name] if name else given.get(field)
    shown = name or f"reaper_{field} in celeryconfig.py"
    return f"{shown}={mask(str(value))!r} is not allowed: it takes {_allowed(model, field)}"
