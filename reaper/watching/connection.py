"""A broker connection for looking: short timeouts, no retries, one sentence when it is away."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from celery import Celery

from reaper.broker import SOCKET_SECONDS, impatient
from reaper.errors import ReaperError
from reaper.urls import mask


class BrokerUnreachable(ReaperError):  # noqa: N818 -- what happened
    """The broker cannot be reached, or broke off."""


@contextmanager
def broker_connection(app: Celery) -> Iterator[Any]:
    """Lend a kombu connection; closed at the end.

    Raises:
        BrokerUnreachable: the broker is away, or went away inside the block.
    """
    connection = impatient(app.connection_for_read(), max_retries=0)
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=SOCKET_SECONDS)
        yield connection
    except ReaperError:
        raise
    except Exception as error:  # noqa: BLE001 -- each transport raises errors of its own
        raise BrokerUnreachable(
            f"the broker {mask(connection.as_uri())} cannot be reached: {type(error).__name__}; "
            "check REAPER_BROKER_URL and that it is up"
        ) from None
    finally:
        with suppress(Exception):
            connection.release()
