"""Handlers of the hooks' fault tests, beside the ordinary ones."""

import random
import sys
import time
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter
from tests.harness.handlers import effect, ok, sleeps, slow

__all__ = ["ok", "sleeps", "slow"]


@on_dead_letter("exact", transactional=True)
def exact(
    context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo, connection: Any
) -> None:
    """Two effects with some time between and around them, for a kill to fall into."""
    for what in ("first", "second"):
        time.sleep(random.uniform(0, 0.05))
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO effects (job_id, run_number, attempt, what) VALUES (%s, 1, 1, %s)",
                (context.job_id, what),
            )


@on_dead_letter("nul")
def nul(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise ValueError("a\0b")


@on_dead_letter("surrogate")
def surrogate(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise ValueError("half \ud800")


@on_dead_letter("megabyte")
def megabyte(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise ValueError("x" * 1_000_000)


@on_dead_letter("unreadable")
def unreadable(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise ValueError

    raise UnreadableError


@on_dead_letter("exit")
def exit_(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    sys.exit(0)


@on_dead_letter("interrupt")
def interrupt(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise KeyboardInterrupt


@on_dead_letter("generator_exit")
def generator_exit(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise GeneratorExit


@on_dead_letter("base")
def base(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise BaseException("odd")  # noqa: TRY002 -- exactly that is the case


@on_dead_letter("short")
def short(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, "begin")
    time.sleep(0.05)
    effect(context, "end")
