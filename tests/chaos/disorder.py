"""The disorder: one random fault after another, on processes and servers of this run alone."""

import os
import random
import signal
from collections import Counter
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

import psycopg2

from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.crew import Crew
from tests.harness.brokers import demoted, drop_connections, full

if TYPE_CHECKING:
    from collections.abc import Callable


class Disorder:
    """Does one fault at a time, each drawn from the seed."""

    def __init__(
        self, seed: int, crew: Crew, postgres: EmbeddedPostgres, valkey: EmbeddedValkey
    ) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._crew = crew
        self._postgres = postgres
        self._valkey = valkey
        self._faults: list[tuple[int, str, Callable[[], bool]]] = [
            (3, "beat killed", lambda: self._kill("beat")),
            (4, "reap worker killed", lambda: self._kill("reap")),
            (4, "reap worker's child killed", lambda: self._kill_child("reap")),
            (5, "hook worker killed", lambda: self._kill("hooks")),
            (6, "hook worker's child killed", lambda: self._kill_child("hooks")),
            (3, "hook worker stopped (SIGTERM)", lambda: self._terminate("hooks")),
            (1, "reap worker stopped (SIGTERM)", lambda: self._terminate("reap")),
            (3, "Redis flushed", self._flush),
            (2, "Redis paused for seconds", self._pause),
            (2, "Redis restarted empty", lambda: self._restart_valkey(keep_data=False)),
            (2, "Redis restarted, its data kept", lambda: self._restart_valkey(keep_data=True)),
            (2, "Redis connections dropped", self._drop_connections),
            (1, "Redis full for seconds", lambda: self._refuse_writes(full)),
            (1, "Redis demoted for seconds", lambda: self._refuse_writes(demoted)),
            (3, "PostgreSQL connections terminated", self._terminate_backends),
            (1, "PostgreSQL restarted (immediate)", lambda: self._restart("immediate")),
            (1, "PostgreSQL restarted (fast)", lambda: self._restart("fast")),
        ]

    @property
    def kills(self) -> int:
        """How many processes were killed with SIGKILL so far."""
        return sum(count for name, count in self.counts.items() if name.endswith("killed"))

    def strike(self) -> str:
        """Do one fault and return its name."""
        weights = [weight for weight, _, _ in self._faults]
        _, name, fault = self.random.choices(self._faults, weights)[0]
        if fault():
            self.counts[name] += 1
        return name

    def _kill(self, kind: str) -> bool:
        return self._crew.strike(kind, signal.SIGKILL)

    def _terminate(self, kind: str) -> bool:
        return self._crew.strike(kind, signal.SIGTERM)

    def _kill_child(self, kind: str) -> bool:
        children = self._crew.children(kind)
        if not children:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(children), signal.SIGKILL)
            return True
        return False

    def _flush(self) -> bool:
        self._valkey.flush()
        return True

    def _pause(self) -> bool:
        self._valkey.pause()
        try:
            self._watch_for_seconds()
        finally:
            self._valkey.resume()
        return True

    def _watch_for_seconds(self) -> None:
        self._crew.watch(1 + self.random.random() * 4)

    def _restart_valkey(self, *, keep_data: bool) -> bool:
        self._valkey.restart(keep_data=keep_data)
        return True

    def _drop_connections(self) -> bool:
        drop_connections(self._valkey)
        return True

    def _refuse_writes(
        self, refusing: "Callable[[EmbeddedValkey], AbstractContextManager[None]]"
    ) -> bool:
        with refusing(self._valkey):
            self._watch_for_seconds()
        return True

    def _terminate_backends(self) -> bool:
        connection = psycopg2.connect(self._postgres.dsn)
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        connection.close()
        return True

    def _restart(self, mode: str) -> bool:
        self._postgres.restart(mode)
        return True
