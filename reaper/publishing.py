"""Rings the doorbells: one ordinary Celery message `[hook_id, try]` per owed hook.

Publishing comes after COMMIT, never holds a transaction open and gives up within 5 s: sockets time
out after 1 s and nothing is tried twice. What was not sent stays in the ledger.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu import Producer, Queue

from reaper import telemetry
from reaper.celery import HOOK_QUEUE, HOOK_TASK
from reaper.hooks import clean
from reaper.jobs import HookRef

SOCKET_SECONDS = 1.0
"""For connecting and for each answer; three of them stay under the 5 s a publish may take."""

PIPELINE_COMMANDS = 1_000
"""Messages per round trip to the broker; a message is about 1 kB."""

_SHOWN_CHARACTERS = 100
"""Of a job type in Flower: enough to read, too little to smuggle."""


class Doorbell:
    """Publishes hook messages on a connection of its own, made after the fork."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None
        self._pid = 0

    def publish(self, hooks: Sequence[HookRef]) -> bool:
        """Ring for each hook; return False if any was not sent, or perhaps not. Never raises."""
        try:
            channel = self._channel()
            producer = Producer(channel, serializer="json")
            self._queue(channel).declare()
            with producer.batch(max_size=PIPELINE_COMMANDS):
                for hook in hooks:
                    self._send(producer, hook)
        # Any failure of any transport means the same: unknown, so redelivery rings again.
        except Exception as error:  # noqa: BLE001
            telemetry.publish_failed(type(error).__name__, len(hooks))
            self.close()
            return False
        return True

    def count_messages(self) -> int:
        """Return how many hook messages wait in the queue; 0 where the broker does not answer."""
        try:
            return int(self._queue(self._channel()).queue_declare().message_count)
        except Exception as error:  # noqa: BLE001 -- as above: publishing will fail and say so
            telemetry.publish_failed(type(error).__name__, 0)
            self.close()
            return 0

    def close(self) -> None:
        """Drop the connection; the next publish opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(Exception):
                connection.release()

    def _send(self, producer: Producer, hook: HookRef) -> None:
        message = self._app.amqp.create_task_message(
            uuid4().hex,
            HOOK_TASK,
            [hook.hook_id, hook.try_number],
            {},
            argsrepr=describe(hook),
            kwargsrepr="{}",
            ignore_result=True,
        )
        producer.publish(
            message.body,
            exchange="",
            routing_key=HOOK_QUEUE,
            headers=message.headers,
            retry=False,
            **message.properties,
        )

    def _channel(self) -> Any:
        if self._connection is None or self._pid != os.getpid():
            template = self._app.connection_for_write()
            self._connection = template.clone(
                connect_timeout=SOCKET_SECONDS,
                transport_options={
                    **template.transport_options,
                    "socket_connect_timeout": SOCKET_SECONDS,
                    "socket_timeout": SOCKET_SECONDS,
                    "read_timeout": SOCKET_SECONDS,
                    "write_timeout": SOCKET_SECONDS,
                },
            )
            self._pid = os.getpid()
            self._kept = self._connection.channel()
        return self._kept

    @staticmethod
    def _queue(channel: Any) -> Queue:
        return Queue(HOOK_QUEUE)(channel)


def describe(hook: HookRef) -> str:
    """Return what Flower and logs show of a message: ids and the type, cleaned and cut."""
    job_type = clean(hook.job_type[:_SHOWN_CHARACTERS])
    return f"(hook {hook.hook_id}, try {hook.try_number}, job {hook.job_id}, {job_type})"
