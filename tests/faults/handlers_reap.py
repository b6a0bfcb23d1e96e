"""A handler that says what it was given, in a form that any payload survives."""

import hashlib
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter
from tests.harness.handlers import effect


@on_dead_letter("tells")
def tells(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, hashlib.sha256(written(payload).encode()).hexdigest())


def written(payload: Any) -> str:
    """Return the payload in Python's words; nested lists only by their depth."""
    depth = 0
    while isinstance(payload, list) and len(payload) == 1:
        payload, depth = payload[0], depth + 1
    return f"{depth} {payload!r}"


@on_dead_letter("together", transactional=True)
def together(
    context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo, connection: Any
) -> None:
    """Write through the lent connection: kept if and only if the hook is recorded as completed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (job_id, run_number, attempt, what) VALUES (%s, %s, %s, %s)",
            (context.job_id, context.run_number, context.attempt, "together"),
        )
    if payload.get("fails"):
        raise ValueError("as planned")
