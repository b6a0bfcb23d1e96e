"""reaper: takes expired job leases back from PostgreSQL and delivers every death notice.

The public names. Importing this starts nothing: no settings are read, no Celery is loaded.
"""

from reaper.errors import (
    ConfigError,
    LeaseLost,
    ReaperError,
    RegistryError,
    SchemaError,
    StoreError,
)
from reaper.jobs import (
    JobContext,
    JobDeadLetterInfo,
    JobDeadLetterReason,
    JobFailure,
    JobFailureKind,
    ReapResult,
)
from reaper.registry import JobHandler, JobRegistry, on_dead_letter

__all__ = [
    "ConfigError",
    "JobContext",
    "JobDeadLetterInfo",
    "JobDeadLetterReason",
    "JobFailure",
    "JobFailureKind",
    "JobHandler",
    "JobRegistry",
    "LeaseLost",
    "ReapResult",
    "ReaperError",
    "RegistryError",
    "SchemaError",
    "StoreError",
    "on_dead_letter",
]
