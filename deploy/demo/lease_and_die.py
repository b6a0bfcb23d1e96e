"""Leases jobs and dies with them, round after round, so that a fresh stack has something to show.

Every round is a process of its own that enqueues one job of each type the demo has a handler for,
leases what it finds and is killed with SIGKILL. What becomes of the jobs is reaper's business.
`--healthy` tells the health check whether rounds go on.
"""

# ruff: noqa: INP001 -- a script that is mounted into a container, no package

import os
import signal
import sys
import time
from multiprocessing import Process
from pathlib import Path

import reaper.demo.handlers  # noqa: F401 -- fills the registry: the types are those with a handler
from reaper import leases
from reaper.registry import registry

ROUND_SECONDS = 20.0
LEASE_SECONDS = 5.0

HANGING_TYPE = "sync-crm"
HANGING_EVERY_ROUNDS = 4
"""Its hooks run into their time limit. With more of them the type would soon be throttled."""

MAX_ATTEMPTS = {"render-video": 2}
"""Put back once, and taken to its death by a later round. Jobs of other types have one attempt."""

STAMP = Path("/tmp/last-round")  # noqa: S108 -- the only writable folder of the container
STALE_SECONDS = 3 * ROUND_SECONDS


def lease_and_die(number: int) -> None:
    """Enqueue, lease, and end as the kernel ends a process when memory runs out."""
    database = leases.connect()
    worker = f"demo-{number}"
    for job_type in registry.job_types():
        leases.define_job_type(database, job_type, max_attempts=MAX_ATTEMPTS.get(job_type, 1))
        if job_type != HANGING_TYPE or number % HANGING_EVERY_ROUNDS == 1:
            leases.enqueue(database, job_type, {"round": number})
    held = leases.claim(
        database,
        worker_id=worker,
        lease_seconds=LEASE_SECONDS,
        batch_size=100,
        job_types=registry.job_types(),
    )
    for lease in held:
        print(f"{worker} holds {lease.job_type} {lease.job_id}, attempt {lease.attempt}")  # noqa: T201 -- the log
    print(f"{worker} is killed with {len(held)} jobs in its hands", flush=True)  # noqa: T201 -- the log
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Go on until the container is stopped."""
    number = 0
    while True:
        number += 1
        worker = Process(target=lease_and_die, args=(number,))
        worker.start()
        worker.join()
        if worker.exitcode == -signal.SIGKILL:
            STAMP.touch()
        time.sleep(ROUND_SECONDS)


def is_healthy() -> bool:
    """Return whether a round came to its planned end lately."""
    return STAMP.exists() and time.time() - STAMP.stat().st_mtime < STALE_SECONDS


if __name__ == "__main__":
    if "--healthy" in sys.argv:
        sys.exit(not is_healthy())
    main()
