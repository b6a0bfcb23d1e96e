"""How many messages wait, through kombu: the same on every transport."""

from typing import Any

from reaper.celery import HOOK_QUEUE, REAP_QUEUE

_NOT_FOUND = "404"


def queue_lengths(connection: Any) -> dict[str, int]:
    """Return the messages that wait in reaper's two queues; a queue nobody made yet has none."""
    return {name: _length(connection, name) for name in (REAP_QUEUE, HOOK_QUEUE)}


def _length(connection: Any, name: str) -> int:
    channel = connection.channel()
    try:
        return int(channel.queue_declare(queue=name, passive=True).message_count)
    except connection.channel_errors as error:
        if _NOT_FOUND in str(error):
            return 0
        raise
    finally:
        channel.close()
