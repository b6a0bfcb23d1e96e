"""Handlers that real hook workers run in tests. Each says what it did in the table `effects`."""

import os
import signal
import sys
import time
from functools import cache
from typing import Any

import psycopg2

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter


@cache
def _connection(_pid: int) -> Any:
    connection = psycopg2.connect(os.environ["REAPER_DATABASE_URL"])
    connection.autocommit = True
    return connection


def effect(context: JobContext, what: str) -> None:
    """Write one row to `effects`, at once."""
    with _connection(os.getpid()).cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (job_id, run_number, attempt, what) VALUES (%s, %s, %s, %s)",
            (context.job_id, context.run_number, context.attempt, what),
        )


@on_dead_letter("ok")
def ok(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "ok")


@on_dead_letter("raises")
def raises(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "raises")
    raise ValueError("as planned")


@on_dead_letter("sleeps")
def sleeps(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "begin")
    time.sleep(60)
    effect(context, "end")


@on_dead_letter("blocks")
def blocks(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Wait inside libpq, where no Python signal handler runs."""
    effect(context, "begin")
    with _connection(os.getpid()).cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    effect(context, "end")


@on_dead_letter("kills_itself")
def kills_itself(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "begin")
    os.kill(os.getpid(), signal.SIGKILL)


@on_dead_letter("exits")
def exits(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "begin")
    sys.exit(3)


@on_dead_letter("slow")
def slow(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "begin")
    time.sleep(payload["seconds"])
    effect(context, "end")


@on_dead_letter("reports")
def reports(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Write down what a hook sees."""
    failure = dead_letter.failure
    effect(
        context,
        f"{dead_letter.reason.value} {failure.kind.value} {failure.code} "
        f"{dead_letter.max_attempts} {context.worker_id}",
    )
