"""The handlers of the chaos run. Each holds its hook's lock while its process runs it.

The lock is a file's: the kernel releases it with the process, so it says what really ran at the
same time, whatever the servers forgot.
"""

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter

LOCKS = Path(os.environ["CHAOS_LOCKS"])
DSN = os.environ["REAPER_DATABASE_URL"]


@contextmanager
def alone(context: JobContext) -> Iterator[None]:
    """Hold the hook's lock; leave a file `overlap-...` where another process holds it."""
    name = f"{context.job_id}-{context.run_number}-{context.attempt}"
    with (LOCKS / f"lock-{name}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (LOCKS / f"overlap-{name}-{os.getpid()}").touch()
        yield


def effect(cursor: Any, context: JobContext) -> None:
    """Write one row that says this hook's handler did its work."""
    cursor.execute(
        "INSERT INTO chaos_effects (job_id, run_number, attempt, job_type) VALUES (%s, %s, %s, %s)",
        (context.job_id, context.run_number, context.attempt, context.job_type),
    )


def effect_of_its_own(context: JobContext) -> None:
    """Commit the same at once on a connection of its own; try until PostgreSQL is up."""
    while True:
        try:
            connection = psycopg2.connect(DSN)
            connection.autocommit = True
            with connection.cursor() as cursor:
                effect(cursor, context)
            connection.close()
        except psycopg2.OperationalError:
            time.sleep(0.1)
        else:
            return


@on_dead_letter("plain")
def plain(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Do some work and write one effect."""
    with alone(context):
        time.sleep(random.random() * 0.3)
        effect_of_its_own(context)


@on_dead_letter("transactional", transactional=True)
def transactional(
    context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo, connection: Any
) -> None:
    """Write the effect in the transaction that records the outcome."""
    with alone(context), connection.cursor() as cursor:
        effect(cursor, context)
        time.sleep(random.random() * 0.3)


@on_dead_letter("unsure", max_tries=50)
async def unsure(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Raise now and then."""
    with alone(context):
        if random.random() < 0.2:
            raise RuntimeError("as planned")
        effect_of_its_own(context)


@on_dead_letter("hangs")
def hangs(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Hang in C now and then, where only a kill helps; more often, and the throttle would work."""
    with alone(context):
        if random.random() < 0.05:
            psycopg2.connect(DSN).cursor().execute("SELECT pg_sleep(60)")
        effect_of_its_own(context)


@on_dead_letter("kills_itself")
def kills_itself(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Die in the middle now and then."""
    with alone(context):
        if random.random() < 0.2:
            os.kill(os.getpid(), 9)
        effect_of_its_own(context)
