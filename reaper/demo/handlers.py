"""The demo's handlers: the hook worker calls one for each dead job (REAPER_HANDLERS).

They show how a handler can end; yours look like the first.
"""

import time
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter

HANGS_SECONDS = 3600.0


@on_dead_letter("charge-card")
def take_back(_context: JobContext, _payload: Any, _dead_letter: JobDeadLetterInfo) -> None:
    """Return: the hook is completed. Real code refunds `_payload["order"]` here, at most once."""


@on_dead_letter("render-video")
async def tell_the_owner(
    _context: JobContext, _payload: Any, _dead_letter: JobDeadLetterInfo
) -> None:
    """Return from a coroutine: completed as well."""


@on_dead_letter("notify-partner")
def call_partner(_context: JobContext, _payload: Any, _dead_letter: JobDeadLetterInfo) -> None:
    """Raise: the hook has failed, and nothing else notices."""
    raise ConnectionError("the partner's server refused the connection")


@on_dead_letter("sync-crm")
def sync(_context: JobContext, _payload: Any, _dead_letter: JobDeadLetterInfo) -> None:
    """Hang: the hook is cut off at its time limit."""
    time.sleep(HANGS_SECONDS)
