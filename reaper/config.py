"""The settings: every knob, from the environment, validated once at start. Imports no client.

Precedence: `REAPER_*` > its `JOBS_*` alias > `reaper_*` in a celeryconfig.py > the default. An
empty or blank value counts as not set. The original silently fell back to a default on a bad value,
which hides typos; here every fault is reported, all at once, and the process does not start.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from reaper import environment
from reaper.errors import ConfigError
from reaper.urls import broker_fault, database_fault

MAX_HOOK_CONCURRENCY = 8
"""Terminal hooks that may run at once in one worker process, the original's constant."""

KILL_SECONDS_EACH = 0.1
"""Celery kills hung children one after another, this far apart (docs/architecture.md, limits)."""

TICK_BUDGET_MAX_SECONDS = 20.0
"""A tick stops draining after min(interval, this), so that a warm shutdown never waits long."""

REDELIVERY_MAX_SECONDS = 5.0
"""Redelivery looks for lost doorbells every min(interval, this)."""


def _knob(default: Any, allowed: str, *variables: str, **limits: Any) -> Any:
    """A field set by `variables`, the first set one wins; `allowed` completes its error message."""
    return Field(
        default,
        validation_alias=AliasChoices(*variables),
        json_schema_extra={"allowed": allowed},
        **limits,
    )


class Settings(BaseSettings):
    """Every setting, frozen. docs/operations.md says what breaks when one is too low or too high.

    Seconds may be fractions. `drain_seconds` None means: derived, see `drain_window_seconds`.
    """

    model_config = SettingsConfigDict(
        case_sensitive=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = _knob(
        None,
        "a PostgreSQL URL (postgresql://user@host/name) or a libpq DSN (host=... dbname=...)",
        "REAPER_DATABASE_URL",
    )
    broker_url: SecretStr = _knob(
        SecretStr("redis://127.0.0.1:6379/0"),
        "a broker URL Celery knows, such as redis://host:6379/0 or rediss://... (TLS)",
        *environment.BROKER_VARIABLES,
    )
    interval_seconds: float = _knob(
        15.0,
        "seconds between two reaps, from 0.1 to 86400",
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
        "milliseconds until a reaped job may run again, a whole number from 1 to 2147483647",
        "REAPER_RETRY_DELAY_MS",
        "JOBS_REAPER_RETRY_DELAY_MS",
        ge=1,
        le=2_147_483_647,
    )
    hook_timeout_seconds: float = _knob(
        10.0,
        "seconds a hook may run before its soft limit, from 0.1 to 3600",
        "REAPER_HOOK_TIMEOUT_SECONDS",
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
    )
    hook_kill_grace_seconds: float = _knob(
        2.0,
        "seconds from a hook's soft limit to its kill, from 0.1 to 600",
        "REAPER_HOOK_KILL_GRACE_SECONDS",
        ge=0.1,
        le=600,
        allow_inf_nan=False,
    )
    hook_concurrency: int = _knob(
        MAX_HOOK_CONCURRENCY,
        "hooks at once in one worker, a whole number from 1 to 8",
        "REAPER_HOOK_CONCURRENCY",
        ge=1,
        le=MAX_HOOK_CONCURRENCY,
    )
    hook_max_crashes: int = _knob(
        3,
        "how often a hook may lose its worker, a whole number from 1 to 100",
        "REAPER_HOOK_MAX_CRASHES",
        ge=1,
        le=100,
    )
    drain_seconds: float | None = _knob(
        None,
        "seconds a warm shutdown waits for running hooks, from 0 to 7200",
        "REAPER_DRAIN_SECONDS",
        ge=0,
        le=7200,
        allow_inf_nan=False,
    )
    retention_days: float = _knob(
        30.0,
        "days a finished ledger row is kept, above 0 and up to 36500",
        "REAPER_RETENTION_DAYS",
        gt=0,
        le=36_500,
        allow_inf_nan=False,
    )
    log_format: Literal["text", "json"] = _knob("text", "text or json", "REAPER_LOG_FORMAT")
    handlers: Annotated[tuple[str, ...], NoDecode] = _knob(
        (), "importable module names, separated by commas", "REAPER_HANDLERS"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: object) -> object:
        if isinstance(value, bool):  # Python would take True for 1
            raise ValueError("a truth value is meant nowhere here")  # noqa: TRY004 -- pydantic's way to say so
        return value

    @field_validator("handlers", mode="before")
    @classmethod
    def _split_modules(cls, value: object) -> object:
        names = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
        if not isinstance(names, list | tuple):
            return names
        for name in filter(None, names):
            if not all(part.isidentifier() for part in str(name).split(".")):
                raise ValueError(f"{name} is no module name")
        return tuple(filter(None, names))

    @field_validator("database_url", "broker_url")
    @classmethod
    def _is_url(cls, value: SecretStr | None, info: Any) -> SecretStr | None:
        fault_of = database_fault if info.field_name == "database_url" else broker_fault
        fault = fault_of(value.get_secret_value()) if value else None
        if fault:
            raise ValueError(fault)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 -- pydantic's signature, here and below
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read keywords, then the environment without its blanks; no files."""
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = environment.without_blanks()
        return init_settings, env_settings

    @classmethod
    def load(cls, celeryconfig: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of this process.

        Args:
            celeryconfig: `reaper_*` values from a celeryconfig.py, without the prefix; None and
                blank ones count as not set.

        Raises:
            ConfigError: one line for each fault: the variable, its value (secrets masked) and
                what is allowed.
        """
        given = {k: v for k, v in (celeryconfig or {}).items() if environment.is_set(v)}
        faults = environment.unknown_names(cls, given) + environment.broker_contradictions()
        used = environment.not_overruled(cls, given)
        try:
            settings = cls(**used)
        except ValidationError as error:
            found = error.errors(include_url=False)
            faults += [environment.describe_fault(cls, dict(each), used) for each in found]
        if faults:
            raise ConfigError("\n".join(dict.fromkeys(faults))) from None
        return settings

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
                f"{environment.allowed(type(self), 'database_url')}, "
                "or run `reaper up` for servers of its own"
            )
        return self.database_url.get_secret_value()
