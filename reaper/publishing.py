"""Rings the doorbells: one ordinary Celery message `[hook_id, try]` per owed hook.

Publishing comes after COMMIT, never holds a transaction open and gives up within 5 s, however the
broker hangs: sockets time out after 1 s, nothing is tried twice, and the whole has a time of its
own. What was not sent stays in the ledger.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu import Producer, Queue

from reaper import broker, telemetry
from reaper.calling import clean
from reaper.celery import HOOK_QUEUE, HOOK_TASK
from reaper.jobs import HookRef

GIVE_UP_SECONDS = 4.0
"""For everything together, also what no socket timeout bounds: a name server that does not answer,
a broker that drips. 1 s below the promised 5 s, for a busy machine."""

PIPELINE_COMMANDS = 1_000
"""Messages per round trip to the broker; a message is about 1 kB."""

UNKNOWN_COUNT = sys.maxsize
"""Messages that wait where the broker does not say: enough, so that nothing is rung in vain."""

_SHOWN_CHARACTERS = 100
"""Of a job type in Flower: enough to read, too little to smuggle."""


class Doorbell:
    """Publishes hook messages on a connection of its own, made after the fork.

    The broker is talked to in a thread, because only a thread can be left behind when it hangs. It
    is the only one: while it hangs, every further call fails at once.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None
        self._channel: Any = None
        self._pid = 0
        self._hanging: threading.Thread | None = None

    def publish(self, hooks: Sequence[HookRef]) -> bool:
        """Ring for each hook; return False if any was not sent, or perhaps not. Never raises."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        return self._ask(lambda: self._send_all(hooks, deadline), len(hooks)) is not None

    def count_messages(self) -> int:
        """Return how many hook messages wait, `UNKNOWN_COUNT` where the broker does not say."""
        count = self._ask(lambda: int(self._queue().queue_declare().message_count), 0)
        return UNKNOWN_COUNT if count is None else count

    def close(self) -> None:
        """Drop the connection; the next publish opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(Exception):
                connection.release()

    def _ask(self, work: Callable[[], int], hooks: int) -> int | None:
        """Return what `work` returns, or None where it failed or is not done in time."""
        if self._hanging is not None and self._hanging.is_alive():
            telemetry.publish_failed("StillHanging", hooks)
            return None
        answers: list[int] = []
        thread = threading.Thread(target=self._try, args=(work, hooks, answers), daemon=True)
        thread.start()
        thread.join(GIVE_UP_SECONDS)
        if thread.is_alive():
            self._hanging = thread
            telemetry.publish_failed("TimeoutError", hooks)
            return None
        return answers[0] if answers else None

    def _try(self, work: Callable[[], int], hooks: int, answers: list[int]) -> None:
        try:
            self._connect()
            answers.append(work())
        # Any failure of any transport means the same: unknown, so redelivery rings again.
        except Exception as error:  # noqa: BLE001
            telemetry.publish_failed(type(error).__name__, hooks)
            self.close()

    def _send_all(self, hooks: Sequence[HookRef], deadline: float) -> int:
        self._queue().declare()
        producer: Any = Producer(self._channel, serializer="json")
        with producer.batch(max_size=PIPELINE_COMMANDS):
            for hook in hooks:
                self._send(producer, hook)
                if time.monotonic() > deadline:  # left behind: nobody waits for the rest
                    raise TimeoutError
        return len(hooks)

    def _send(self, producer: Any, hook: HookRef) -> None:
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

    def _connect(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._connection = broker.impatient(self._app.connection_for_write())
        # Without this, kombu sleeps 2 s between its two attempts to connect.
        self._connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        self._channel = self._connection.channel()

    def _queue(self) -> Any:
        return Queue(HOOK_QUEUE)(self._channel)


def describe(hook: HookRef) -> str:
    """Return what Flower and logs show of a message: the type and ids, cleaned and cut.

    Flower's list of tasks shows about 45 characters: type and job id come first.
    """
    job_type = clean(hook.job_type[:_SHOWN_CHARACTERS])
    return f"({job_type} {hook.job_id}, hook {hook.hook_id}, try {hook.try_number})"
