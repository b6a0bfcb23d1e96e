"""Which worker process this is: its name in the ledger, its pool. Must not import the rest."""

import os
import socket
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from reaper.celery import HOOK_QUEUE, settings
from reaper.store import Database

CONNECT_SECONDS = 2
STATEMENT_MS = 500
"""The parent's loop runs every hook's limits: it never waits long for PostgreSQL."""


@dataclass(slots=True)
class WorkerProcess:
    """The worker this process is, or the pool child of. Filled before the fork.

    Attributes:
        controller: Celery's worker; None outside a worker.
        runs_hooks: decided at the start: a queue that is paused for a while changes nothing.
        name: in `claimed_by`; no two processes ever share it, pool children have their parent's.
    """

    controller: Any = None
    runs_hooks: bool = False
    name: str = ""

    def adopt(self, controller: Any) -> set[str]:
        """Be the process of this worker; return the queues it consumes."""
        queues = set(controller.app.amqp.queues.consume_from)
        self.controller = controller
        self.runs_hooks = HOOK_QUEUE in queues
        self.name = f"{controller.hostname}:{os.getpid()}:{uuid4().hex[:8]}"
        return queues

    def identity(self) -> str:
        """Return the name that goes into `claimed_by`."""
        return self.name or f"{socket.gethostname()}:{os.getpid()}"

    def pool_pids(self) -> list[int]:
        """Return the pool's children; none before it has started and after it has ended."""
        try:
            return [int(pid) for pid in self.controller.pool.info["processes"]]
        except (AttributeError, TypeError, KeyError):
            return []


process = WorkerProcess()


def parent_database() -> Database:
    """Return a database for one statement of the parent: opened, used and closed.

    A connection kept in the parent would be inherited by every child it forks.
    """
    return Database(
        settings.require_database_url(),
        connect_timeout_seconds=CONNECT_SECONDS,
        statement_timeout_ms=STATEMENT_MS,
    )
