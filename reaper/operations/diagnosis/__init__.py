"""The checks of `reaper doctor`: each looks at one thing and says what it found and the cure.

`database`, `reaping` and `handlers` read PostgreSQL; `broker` and `settings` judge values handed
in. They change nothing. Must not import Celery or psycopg2.
"""

from reaper.operations.diagnosis.findings import Finding, Severity, worst
from reaper.operations.diagnosis.run import diagnose
from reaper.operations.diagnosis.scene import Scene

__all__ = ["Finding", "Scene", "Severity", "diagnose", "worst"]
