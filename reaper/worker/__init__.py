"""What a worker enforces around Celery's own pool. Importing it connects Celery's signals.

Celery runs the pool, its limits and the shutdown; this package sets them where they cannot be
talked round, records what only the parent process sees, and makes the end of a shutdown certain.
Nothing below it may import `reaper.tasks`.
"""

from reaper.worker import drain, remote, start
from reaper.worker.limits import handler_limits, hook_signals
from reaper.worker.process import process
from reaper.worker.request import HookRequest

__all__ = [
    "HookRequest",
    "drain",
    "handler_limits",
    "hook_signals",
    "process",
    "remote",
    "start",
]
