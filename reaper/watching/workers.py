"""Who is alive: workers and beats answer Celery's remote control.

Remote control has no list of nodes: it waits its whole timeout. The nodes that listen are named in
the broker's bindings, so the wait ends as soon as all of them have answered.
"""

from collections.abc import Iterable
from typing import Any

from celery import Celery

from reaper.celery import HOOK_QUEUE
from reaper.operations.facts import HANDLERS_COMMAND, WorkerSeen

REPLY_SECONDS = 1.0
"""How long to wait for the next answer: a worker's main loop answers within milliseconds, on a
busy machine within some hundred."""

_BEAT = "celerybeat@"
_EXCHANGE = "celery.pidbox"


def find_nodes(app: Celery, connection: Any) -> tuple[set[str], set[str]]:
    """Return the names of the nodes that answer, and of those that listened once and do not."""
    expected = _listeners(connection)
    if expected is not None and not expected:
        return set(), set()
    answered = set(_ask(app, connection, "ping", limit=len(expected) if expected else None))
    return answered, (expected or set()) - answered


def describe_workers(app: Celery, connection: Any, names: Iterable[str]) -> list[WorkerSeen]:
    """Return what the named workers consume, on which pool, and which handlers they have."""
    workers = sorted(name for name in names if not name.startswith(_BEAT))
    if not workers:
        return []
    queues = _ask(app, connection, "active_queues", workers)
    stats = _ask(app, connection, "stats", workers)
    handlers = _ask(app, connection, HANDLERS_COMMAND, _hook_workers(workers, queues))
    return [
        WorkerSeen(
            name=name,
            queues=_queue_names(queues.get(name)),
            pool=_pool(stats.get(name)),
            processes=_processes(stats.get(name)),
            handlers=_handlers(handlers.get(name)),
        )
        for name in workers
    ]


def beats(names: Iterable[str]) -> list[str]:
    """Return those of the nodes that are beats."""
    return sorted(name for name in names if name.startswith(_BEAT))


def _listeners(connection: Any) -> set[str] | None:
    """The nodes bound to remote control; None where this transport cannot say."""
    channel = connection.default_channel
    if not hasattr(channel, "get_table"):
        return None
    suffix = f".{_EXCHANGE}"
    return {row[-1].removesuffix(suffix) for row in channel.get_table(_EXCHANGE)}


def _ask(
    app: Celery,
    connection: Any,
    command: str,
    names: list[str] | None = None,
    *,
    limit: int | None = None,
) -> dict[str, Any]:
    if names is not None and not names:
        return {}
    replies = app.control.broadcast(
        command,
        destination=names,
        connection=connection,
        reply=True,
        timeout=REPLY_SECONDS,
        limit=limit,
    )
    return {name: answer for reply in replies or () for name, answer in reply.items()}


def _hook_workers(workers: list[str], queues: dict[str, Any]) -> list[str]:
    return [name for name in workers if HOOK_QUEUE in (_queue_names(queues.get(name)) or ())]


def _queue_names(answer: Any) -> tuple[str, ...] | None:
    if not isinstance(answer, list):
        return None
    return tuple(sorted(str(queue["name"]) for queue in answer))


def _pool(answer: Any) -> str | None:
    implementation = _part(answer, "implementation")
    if implementation is None:
        return None
    return str(implementation).partition(":")[0].rpartition(".")[2]


def _processes(answer: Any) -> int | None:
    most = _part(answer, "max-concurrency")
    return most if isinstance(most, int) else None


def _part(answer: Any, key: str) -> Any:
    pool = answer.get("pool") if isinstance(answer, dict) else None
    return pool.get(key) if isinstance(pool, dict) else None


def _handlers(answer: Any) -> tuple[str, ...] | None:
    return tuple(answer["handlers"]) if isinstance(answer, dict) and "handlers" in answer else None
