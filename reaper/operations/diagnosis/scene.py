"""What the checks look at: the database, the settings, and what the broker said."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from reaper.config import Settings
from reaper.errors import ReaperError
from reaper.operations.facts import BrokerView
from reaper.store import Database


@dataclass(frozen=True, slots=True)
class Scene:
    """Handed to every check.

    Attributes:
        database: where to look.
        settings: of this process, taken for those of the deployment.
        look: what the broker and the workers say; a ReaperError where the broker is away.
        host_clock: this host's time, seconds since 1970.
    """

    database: Database
    settings: Settings
    look: Callable[[], BrokerView | ReaperError]
    host_clock: Callable[[], float] = time.time
