"""The load: jobs are enqueued, leased and mostly abandoned; some holders finish, some too late."""

import random
import threading
from collections import Counter
from contextlib import suppress

from reaper import JobFailureKind, LeaseLost, StoreError, leases
from reaper.store import Database

TYPES = ("plain", "transactional", "unsure", "hangs", "kills_itself", "nobody")
LEASE_SECONDS = 0.7
PACE_SECONDS = 0.25
"""Between two rounds; a round enqueues up to five jobs and claims up to eight."""


class Load(threading.Thread):
    """A lease holder that dies all the time, in a thread with a connection of its own."""

    def __init__(self, dsn: str, seed: int) -> None:
        super().__init__(name=f"load-{seed}", daemon=True)
        self.random = random.Random(seed)
        self.database = Database(dsn)
        self.known: list[str] = []
        self.counts: Counter[str] = Counter()
        self.is_broken = False
        self._end = threading.Event()
        self._zombies: list[leases.Lease] = []

    def run(self) -> None:
        """Go on until `finish`, whatever PostgreSQL does."""
        self.is_broken = True
        while not self._end.wait(PACE_SECONDS * self.random.random() * 2):
            try:
                self._round()
            except StoreError:
                self.counts["rounds broken off"] += 1
        self.database.close()
        self.is_broken = False

    def finish(self) -> None:
        """Stop claiming and wait until the thread has ended."""
        self._end.set()
        self.join(60)

    def _round(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            job_type = self.random.choice(TYPES)
            attempts = self.random.randint(1, 3)
            job = leases.enqueue(
                self.database, job_type, {"text": "x" * 100}, max_attempts=attempts
            )
            self.known.append(job)
        self._come_back_late()
        claimed = leases.claim(
            self.database,
            self.name,
            batch_size=8,
            lease_seconds=LEASE_SECONDS,
            prestart=self.random.random() < 0.2,
        )
        for lease in claimed:
            with suppress(LeaseLost):
                self._hold(lease)

    def _hold(self, lease: leases.Lease) -> None:
        """Begin some, finish a few, fail a few, abandon the rest."""
        chance = self.random.random()
        if chance < 0.5:
            leases.start(self.database, lease)
        if chance < 0.1:
            leases.succeed(self.database, lease)
            self.counts["succeeded"] += 1
        elif chance < 0.2:
            kind = JobFailureKind.RETRYABLE if chance < 0.15 else JobFailureKind.TERMINAL
            leases.fail(self.database, lease, kind=kind, code="chaos", retry_delay_ms=100)
            self.counts["failed"] += 1
        elif chance < 0.3:
            self._zombies.append(lease)
        else:
            self.counts["abandoned"] += 1

    def _come_back_late(self) -> None:
        """A zombie reports success; past its lease it must be refused."""
        for lease in self._zombies[:-5]:
            self._zombies.remove(lease)
            try:
                leases.succeed(self.database, lease)
                self.counts["succeeded late but in time"] += 1
            except LeaseLost:
                self.counts["zombies refused"] += 1
