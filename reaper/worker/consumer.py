"""Celery's consumer, made to outlive a broker that goes away while hooks run."""

import warnings
from contextlib import suppress
from typing import Any

from celery.exceptions import CPendingDeprecationWarning
from celery.utils.threads import bound_open_broker_sockets  # type: ignore[attr-defined]
from celery.worker.consumer import Consumer

from reaper.broker import SOCKET_SECONDS


class LastingConsumer(Consumer):
    """Celery's consumer with one step more where the connection to the broker is lost."""

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Close each channel by itself, then do what Celery does.

        Celery's own clean-up stops at the first channel that cannot say goodbye, takes the client
        away from the transport, and then has an AttributeError at a channel that still holds
        unacknowledged messages: the worker ends (celery and kombu 5.7.0 on Redis, as soon as one
        to seven of eight hooks run). A channel closed here keeps a way to acknowledge them later.
        """
        bound_open_broker_sockets(self.connection, SOCKET_SECONDS)
        for channel in _channels(self.connection):
            _close(channel)
        with warnings.catch_warnings():  # "running tasks are not cancelled": they shall not be
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)


def _channels(connection: Any) -> list[Any]:
    """Return the open channels; none where the transport keeps no list of them, as AMQP's."""
    return list(getattr(connection.transport, "channels", None) or ())


def _close(channel: Any) -> None:
    """Close a channel whose connection is lost; whatever fails is given up."""
    for _ in range(2):  # the first may fail at the reply it waits for, the second waits for none
        with suppress(Exception):
            channel.close()
