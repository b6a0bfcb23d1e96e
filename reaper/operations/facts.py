"""What workers and the broker say, as values: read by `reaper.watching`, judged by `diagnosis`."""

from dataclasses import dataclass

HANDLERS_COMMAND = "reaper_handlers"
"""The remote-control command by which a hook worker tells its handlers."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A Celery worker that answered.

    Attributes:
        name: its node name.
        queues: what it consumes; None where it did not say in time.
        pool: its pool, `prefork` or another; None as above.
        processes: pool processes; None as above.
        handlers: job types it has handlers for; None where it does not run hooks.
    """

    name: str
    queues: tuple[str, ...] | None = None
    pool: str | None = None
    processes: int | None = None
    handlers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What only Redis can tell. A field is None where this server or this user may not say.

    Attributes:
        eviction_policy: `maxmemory-policy`.
        keeps_data: whether it writes an append-only file or snapshots.
        key_prefix: of reaper's keys; empty means none.
        strangers: some keys in the same database that are not reaper's.
    """

    eviction_policy: str | None
    keeps_data: bool | None
    key_prefix: str
    strangers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What the broker and those who listen on it say.

    `redis` is None on other transports. `missing` are nodes that once listened and did not answer:
    dead, or too busy.
    """

    queues: dict[str, int]
    workers: tuple[WorkerSeen, ...] = ()
    beats: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    redis: RedisFacts | None = None
    visibility_timeout: float | None = None
