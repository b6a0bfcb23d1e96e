"""What a hook worker answers over Celery's remote control: which job types it has handlers for.

Only hook workers import handlers, so `reaper doctor` has to ask one. Imported by workers only: it
loads Celery's worker.
"""

from typing import Any

from celery.worker.control import inspect_command

from reaper.operations.facts import HANDLERS_COMMAND
from reaper.registry import registry


@inspect_command(name=HANDLERS_COMMAND)
def list_handlers(_state: Any) -> dict[str, list[str]]:
    """Return the job types this worker has handlers for, `*` among them."""
    return {"handlers": registry.job_types()}
