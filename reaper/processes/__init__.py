"""The three processes of reaper as children of this one, for `reaper up` and `reaper demo`.

Each ends with this process, however that ends. In production a supervisor starts them instead. Must
not import Celery, psycopg2 or the settings: the children read their own.
"""

from reaper.processes.children import Child, Children
from reaper.processes.commands import CELERY_COMMANDS, celery_command, without_settings
from reaper.processes.output import PrefixedOutput
from reaper.processes.stopping import StopSignals

__all__ = [
    "CELERY_COMMANDS",
    "Child",
    "Children",
    "PrefixedOutput",
    "StopSignals",
    "celery_command",
    "without_settings",
]
