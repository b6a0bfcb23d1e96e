"""Handlers that the image's hook worker finds in its working directory."""

import time
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter


@on_dead_letter("quick")
def quick(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    return None


@on_dead_letter("slow")
def slow(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    time.sleep(payload["seconds"])
