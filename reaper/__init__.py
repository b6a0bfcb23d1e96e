"""reaper: takes expired job leases back from PostgreSQL and delivers every death notice.

The public names. Importing this starts nothing: no settings are read, no server is contacted, no
Celery is loaded. Handlers need `on_dead_letter` and the values it passes; a worker of your own
needs `connect` and the functions of `leases`.
"""

from reaper import leases
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
from reaper.leases import Lease, connect
from reaper.registry import JobHandler, JobRegistry, on_dead_letter
from reaper.store import Database

__all__ = [
    "ConfigError",
    "Database",
    "JobContext",
    "JobDeadLetterInfo",
    "JobDeadLetterReason",
    "JobFailure",
    "JobFailureKind",
    "JobHandler",
    "JobRegistry",
    "Lease",
    "LeaseLost",
    "ReapResult",
    "ReaperError",
    "RegistryError",
    "SchemaError",
    "StoreError",
    "connect",
    "leases",
    "on_dead_letter",
]
