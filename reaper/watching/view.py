"""The whole view of the broker, asked for within a bounded time."""

from typing import Any

from celery import Celery

from reaper.operations.facts import BrokerView
from reaper.watching import queues, redis, workers
from reaper.watching.connection import broker_connection
from reaper.watching.patience import Question

PATIENCE_SECONDS = 6.0
"""Four questions to the workers, 1 s each at most, and the broker's own answers."""


def look(app: Celery) -> BrokerView:
    """Return what the broker, the workers and beat say.

    Raises:
        BrokerUnreachable: the broker is away.
        Unanswered: it hangs.
    """
    return Question(lambda: _look(app), "the broker", patience_seconds=PATIENCE_SECONDS).answer()


def _look(app: Celery) -> BrokerView:
    with broker_connection(app) as connection:
        answered, missing = workers.find_nodes(app, connection)
        return BrokerView(
            queues=queues.queue_lengths(connection),
            workers=tuple(workers.describe_workers(app, connection, answered)),
            beats=tuple(workers.beats(answered)),
            missing=tuple(sorted(missing)),
            redis=redis.read_redis(connection),
            visibility_timeout=_visibility_timeout(connection),
        )


def _visibility_timeout(connection: Any) -> float | None:
    options = connection.transport_options or {}
    value = options.get("visibility_timeout")
    return float(value) if isinstance(value, int | float) else None
