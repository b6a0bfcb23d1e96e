"""The handlers of the benchmarks."""

import os
import time
from functools import cache
from typing import Any

from benchmarks.stand import connect
from reaper import JobContext, JobDeadLetterInfo, on_dead_letter


@on_dead_letter("noop")
def noop(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Do nothing."""


@on_dead_letter("tenth")
def tenth(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Take 100 ms."""
    time.sleep(0.1)


@cache
def _connection(_pid: int) -> Any:
    return connect(os.environ["REAPER_DATABASE_URL"])


@on_dead_letter("entered")
def entered(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Write down when it was entered."""
    now = time.time()
    with _connection(os.getpid()).cursor() as cursor:
        cursor.execute(
            "INSERT INTO entered (job_id, at) VALUES (%s, to_timestamp(%s))", (context.job_id, now)
        )


@on_dead_letter("lost_once")
def lost_once(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Take long in the first worker, and no time in the second."""
    with _connection(os.getpid()).cursor() as cursor:
        cursor.execute(
            "INSERT INTO entered (job_id, at) VALUES (%s, clock_timestamp())", (context.job_id,)
        )
        cursor.execute("SELECT count(*) FROM entered WHERE job_id = %s", (context.job_id,))
        if cursor.fetchone()[0] == 1:
            time.sleep(9)
