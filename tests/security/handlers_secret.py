"""Handlers that see a secret payload and do with it what careless code does."""

import time
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter


@on_dead_letter("fine")
def fine(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    assert payload["secret"]


@on_dead_letter("tells")
def tells(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise ValueError(payload["secret"])


@on_dead_letter("hangs")
def hangs(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    time.sleep(60)
