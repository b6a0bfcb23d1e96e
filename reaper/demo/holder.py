"""A process that leases jobs, and dies holding them: `python -m reaper.demo.holder NAME`.

This is how a worker of your own uses `reaper.leases`, but for its end.
"""

import os
import signal
import sys
import time
from contextlib import suppress

from reaper import leases
from reaper.demo.scenario import (
    CRASHING,
    HEARTBEAT_SECONDS,
    IN_TIME,
    INNOCENT,
    JOB_COUNT,
    LEASE_SECONDS,
    ROLES,
)
from reaper.errors import LeaseLost
from reaper.store import Database

FIRST, SECOND = "worker-1", "worker-2"

_LOOK_AGAIN_SECONDS = 0.2


def hold_until_killed(database: Database) -> None:
    """Be the first worker: lease everything, finish one job, renew the other leases for ever."""
    held = _claim(database, FIRST, JOB_COUNT)
    for lease in held:
        if lease.job_type == IN_TIME:
            leases.succeed(database, lease)
    held = [lease for lease in held if lease.job_type != IN_TIME]
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        for lease in held:
            with suppress(LeaseLost):
                leases.heartbeat(database, lease, lease_seconds=LEASE_SECONDS)


def finish_and_crash(database: Database) -> None:
    """Be the second worker: finish what was put back, then be killed by a job."""
    innocent = next(role for role in ROLES if role.job_type == INNOCENT)
    for lease in _claim(database, SECOND, innocent.job_count, INNOCENT):
        leases.succeed(database, lease)
    _claim(database, SECOND, 1, CRASHING)
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out


def _claim(database: Database, worker_id: str, wanted: int, *job_types: str) -> list[leases.Lease]:
    """Claim jobs until there are `wanted`."""
    held: list[leases.Lease] = []
    while True:
        held += leases.claim(
            database,
            worker_id=worker_id,
            lease_seconds=LEASE_SECONDS,
            batch_size=wanted - len(held),
            job_types=list(job_types) or None,
        )
        if len(held) >= wanted:
            return held
        time.sleep(_LOOK_AGAIN_SECONDS)


if __name__ == "__main__":
    run = {FIRST: hold_until_killed, SECOND: finish_and_crash}[sys.argv[1]]
    run(Database(os.environ["REAPER_DATABASE_URL"], application_name=sys.argv[1]))
