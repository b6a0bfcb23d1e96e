"""Whether the broker answers: asked once at the start of a beat and of a worker."""

from typing import Any

from reaper.errors import ConfigError
from reaper.urls import mask

CONNECT_SECONDS = 2
"""As long as a worker's parent waits for any server: it is up, or the start fails and says so."""


def check_reachable(app: Any) -> None:
    """Return if the app's broker takes a connection.

    Raises:
        ConfigError: it does not; one sentence with the URL, its password masked.
    """
    connection = app.connection_for_write().clone(connect_timeout=CONNECT_SECONDS)
    try:
        connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
        connection.channel()
    except Exception as error:  # noqa: BLE001 -- each transport raises errors of its own
        raise ConfigError(
            f"REAPER_BROKER_URL={mask(connection.as_uri())!r} cannot be reached: "
            f"{type(error).__name__}; check the URL and that the broker is up"
        ) from None
    finally:
        connection.release()
