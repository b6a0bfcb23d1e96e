"""What a beat checks at its start. Must not import handlers or the store."""

from typing import Any

from celery import signals

from reaper import broker, telemetry
from reaper.celery import app, celeryconfig_path, one_line_each, refuse_start
from reaper.errors import ConfigError


@signals.beat_init.connect
def check_beat(**_: Any) -> None:
    """End the process with one line where the broker does not answer."""
    if celeryconfig_path:
        telemetry.config_found(celeryconfig_path)
    try:
        broker.check_reachable(app)
    except ConfigError as error:
        refuse_start(one_line_each(error))
