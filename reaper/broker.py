"""Connections to the broker that do not wait long, and whether it answers at a start."""

from typing import Any

from reaper.errors import ConfigError
from reaper.urls import mask

CONNECT_SECONDS = 2
"""As long as a worker's parent waits for any server: it is up, or the start fails and says so."""

SOCKET_SECONDS = 1.0
"""For connecting and for each answer, where others wait: a broker is on the same network."""


def impatient(template: Any, **options: Any) -> Any:
    """Return a new connection like `template` that gives up after `SOCKET_SECONDS` of silence.

    `options` are further transport options. It is not opened yet.
    """
    return template.clone(
        connect_timeout=SOCKET_SECONDS,
        transport_options={
            **(template.transport_options or {}),
            "socket_connect_timeout": SOCKET_SECONDS,
            "socket_timeout": SOCKET_SECONDS,
            "read_timeout": SOCKET_SECONDS,
            "write_timeout": SOCKET_SECONDS,
            **options,
        },
    )


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
