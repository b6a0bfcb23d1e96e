"""A handler whose effect and outcome commit together, beside the ordinary ones."""

from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter
from tests.harness.handlers import blocks, ok, slow

__all__ = ["blocks", "ok", "slow", "transactional"]


@on_dead_letter("transactional", transactional=True)
def transactional(
    context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo, connection: Any
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (job_id, run_number, attempt, what) VALUES (%s, %s, %s, 'ok')",
            (context.job_id, context.run_number, context.attempt),
        )
