"""The plan of the demo: which jobs there are, and what must have become of each in the end."""

from collections.abc import Mapping
from dataclasses import dataclass

from reaper.jobs import HookState

LEASE_SECONDS = 3.0
"""How long a job stays with a worker that says nothing: short, so that the demo is."""

HEARTBEAT_SECONDS = 1.0
"""Three heartbeats per lease, so that one or two may be late."""

ALIVE_SECONDS = 2.0
"""How long the first worker is seen at work before it is killed."""

HOOK_TIMEOUT_SECONDS = 2.0

DEADLINE_SECONDS = 50.0
"""After this the demo has failed: with the end of its processes it stays within a minute."""

SETTINGS: Mapping[str, str] = {
    "REAPER_INTERVAL_SECONDS": "1",
    "REAPER_RETRY_DELAY_MS": "1500",
    "REAPER_HOOK_TIMEOUT_SECONDS": str(HOOK_TIMEOUT_SECONDS),
    "REAPER_HOOK_KILL_GRACE_SECONDS": "1",
    "REAPER_HOOK_CONCURRENCY": "4",
    "REAPER_DRAIN_SECONDS": "1",
    "REAPER_HANDLERS": "reaper.demo.handlers",
}
"""As in production, only faster."""


@dataclass(frozen=True, slots=True)
class Role:
    """Jobs of one type: what happens to them, what reaper does, and how each must end.

    `retried` counts how often each is put back into the queue.
    """

    job_type: str
    happens: str
    reaper_does: str
    status: str
    job_count: int = 1
    max_attempts: int = 1
    attempt: int = 1
    retried: int = 0
    hook: HookState | None = None

    @property
    def reaped(self) -> int:
        """How many leases of each are taken back: every retry, and the death."""
        return self.retried + (self.status == "DEAD_LETTERED")

    @property
    def title(self) -> str:
        """The type, and how many there are."""
        return f"{self.job_count} x {self.job_type}" if self.job_count > 1 else self.job_type


IN_TIME, CRASHING, INNOCENT = "daily-report", "render-video", "send-invoice"

ROLES: tuple[Role, ...] = (
    Role(IN_TIME, "worker-1 finished it in time", "left it alone", "SUCCEEDED"),
    Role(
        INNOCENT,
        "worker-1 was killed with them",
        "retried: worker-2 finished them",
        "SUCCEEDED",
        job_count=3,
        max_attempts=5,
        attempt=2,
        retried=1,
    ),
    Role(
        CRASHING,
        "kills every worker that runs it",
        "retried once, then called its handler",
        "DEAD_LETTERED",
        max_attempts=2,
        attempt=2,
        retried=1,
        hook=HookState.COMPLETED,
    ),
    Role(
        "charge-card",
        "one attempt, and worker-1 was killed",
        "called its handler",
        "DEAD_LETTERED",
        job_count=2,
        hook=HookState.COMPLETED,
    ),
    Role(
        "notify-partner",
        "the same, and its handler raises",
        "kept the error, went on",
        "DEAD_LETTERED",
        hook=HookState.FAILED,
    ),
    Role(
        "sync-crm",
        "the same, and its handler hangs",
        f"cut the handler off after {HOOK_TIMEOUT_SECONDS:g} s",
        "DEAD_LETTERED",
        hook=HookState.TIMED_OUT,
    ),
)

JOB_COUNT = sum(role.job_count for role in ROLES)
