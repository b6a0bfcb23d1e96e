"""A hook worker on its own: rings for ledger rows by hand, in the place of beat and reap worker."""

from typing import Any

from celery import Celery

from reaper.celery import app
from reaper.config import Settings
from reaper.jobs import HookRef
from reaper.publishing import Doorbell
from reaper.reap import redeliver
from reaper.store import Database
from tests.harness.processes import Process, Processes
from tests.harness.rows import fetch, hook_states, insert_hook
from tests.harness.waiting import eventually

UNRULY = "tests.worker.handlers_unruly"


def start(processes: Processes, *args: str, **env: Any) -> Process:
    """Start a hook worker with the unruly handlers, and wait until it consumes."""
    return processes.hook_worker("-l", "INFO", *args, **({"handlers": UNRULY} | env)).ready()


class Ringer:
    """Writes owed hooks and rings for them on one database and one broker."""

    def __init__(self, connection: Any, dsn: str, broker_url: str) -> None:
        self.connection = connection
        self.settings = Settings.load({"database_url": dsn, "broker_url": broker_url})
        celery = Celery("ringer", broker=broker_url, set_as_current=False)
        celery.conf.broker_transport_options = app.conf.broker_transport_options
        self.celery = celery
        self.doorbell = Doorbell(celery)
        self.database = Database(dsn)

    def hook(self, job_type: str, **columns: Any) -> int:
        """Write one owed hook that is due in a minute, ring for it, return its hook_id."""
        return self.hooks(job_type, 1, **columns)[0]

    def hooks(self, job_type: str, count: int, **columns: Any) -> list[int]:
        """Write and ring for `count` of them, each of a job of its own."""
        known = columns.pop("first", 1)
        values = {"due_seconds": 60} | columns
        ids = [
            insert_hook(self.connection, job_type=job_type, job_id=f"{job_type}-{n}", **values)
            for n in range(known, known + count)
        ]
        assert self.doorbell.publish([HookRef(i, 1, f"{job_type}-{i}", job_type) for i in ids])
        return ids

    def row(self, hook_id: int) -> dict[str, Any]:
        """Return one ledger row."""
        text = "SELECT * FROM reaper.terminal_hooks WHERE hook_id = %s"
        return fetch(self.connection, text, (hook_id,))[0]

    def redeliver(self) -> int:
        """Run one redelivery; return how many doorbells rang."""
        return redeliver(
            self.database, self.settings, self.doorbell.publish, self.doorbell.count_messages
        )

    def redeliver_until_completed(self, count: int, seconds: float = 60) -> None:
        """Redeliver again and again, as beat does, until `count` hooks are completed and none else.

        Hooks come due one after the other: a single redelivery that found some proves nothing.
        """

        def completed() -> bool:
            self.redeliver()
            return hook_states(self.connection) == {"completed": count}

        eventually(completed, seconds, 0.2)

    def age(self) -> None:
        """Make every running or pending hook due."""
        fetch(
            self.connection,
            "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'"
            " WHERE state IN ('running', 'pending')",
        )

    def close(self) -> None:
        self.doorbell.close()
        self.database.close()


def overlap(effects: list[dict[str, Any]]) -> int:
    """Return how many handlers were between their 'begin' and their 'end' at once, at most."""
    moments = sorted((row["at"], row["what"] == "begin") for row in effects)
    most = now = 0
    for _, begins in moments:
        now += 1 if begins else -1
        most = max(most, now)
    return most
