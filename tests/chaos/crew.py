"""The crew: beat, reap workers and hook workers, started again whenever one has ended."""

import random
import time
from collections import Counter
from typing import Any

from tests.harness.processes import READY, Process, Processes

FAST = {
    "interval_seconds": 0.5,
    "retry_delay_ms": 300,
    "claim_batch_size": 20,
    "hook_timeout_seconds": 1.0,
    "hook_kill_grace_seconds": 0.5,
    "hook_concurrency": 3,
    "hook_max_crashes": 100,
}
"""Small batches and short limits, for many arrows in little time. A hundred crashes: no hook may
end as "worker lost" here, so that each must reach an outcome of its own."""

UP = {"beat": "Sending due task", "reap": READY, "hooks": READY}
"""What each logs once it works. Before, it may refuse to start: a server may just be away."""


class Crew:
    """Two reap workers, two hook workers and a beat, as a supervisor keeps them."""

    def __init__(self, processes: Processes, seed: int, **env: Any) -> None:
        self.started: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._processes = processes
        self._env = FAST | env
        self._posts = ["beat", "reap", "reap", "hooks", "hooks"]
        self._members: list[Process | None] = [None] * len(self._posts)
        self._struck: set[Process] = set()
        self.gave_up: list[Process] = []

    def watch(self, seconds: float) -> None:
        """Start whoever is missing, for `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            for index, kind in enumerate(self._posts):
                member = self._members[index]
                if member is None:
                    self._members[index] = self._start(kind)
                elif not member.is_running:
                    self._look_back(kind, member)
                    self._members[index] = self._start(kind)
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.2, left))

    def strike(self, kind: str, signal_number: int) -> bool:
        """Send a signal to one process of a kind; False if none is there."""
        member = self._pick(kind)
        if member is None:
            return False
        member.children()
        self._struck.add(member)
        member.signal(signal_number)
        return True

    def children(self, kind: str) -> list[int]:
        """Return the pool children of one worker of a kind."""
        member = self._pick(kind)
        return member.children() if member else []

    def end(self) -> None:
        """Stop all, warm."""
        there = [member for member in self._members if member is not None and member.is_running]
        for member in there:
            member.terminate()
        for member in there:
            member.wait(30)

    def _look_back(self, kind: str, member: Process) -> None:
        """Keep a process that had worked and ended though nobody had struck it."""
        if member not in self._struck and UP[kind] in member.log:
            self.gave_up.append(member)

    def _pick(self, kind: str) -> Process | None:
        there = [
            member
            for post, member in zip(self._posts, self._members, strict=True)
            if post == kind and member is not None and member.is_running
        ]
        return self._random.choice(there) if there else None

    def _start(self, kind: str) -> Process:
        self.started[kind] += 1
        if kind == "beat":
            return self._processes.beat(**self._env)
        if kind == "reap":
            return self._processes.reap_worker(**self._env)
        return self._processes.hook_worker(handlers="tests.chaos.handlers", **self._env)
