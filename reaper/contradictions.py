"""What a celeryconfig.py may not say: reaper's own tasks would no longer keep their promises.

Each function returns one sentence per fault. Knows Celery's configuration, changes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from celery.app.annotations import prepare
from celery.app.routes import MapRoute
from kombu import Queue

_GOVERNED = {
    "queue",
    "exchange",
    "routing_key",
    "serializer",
    "time_limit",
    "soft_time_limit",
    "acks_late",
    "acks_on_failure",
    "acks_on_timeout",
    "acks_on_failure_or_timeout",
    "reject_on_worker_lost",
    "expires",  # compares the sender's clock with the worker's
    "countdown",
    "eta",
}
"""Options of reaper's own tasks that come from Settings and reaper.tasks alone."""

_JSON = {"json", "application/json"}
_PREFORK = {"prefork", "processes", "celery.concurrency.prefork:TaskPool"}


Overruled = tuple[str, str, str, str]
"""Where, which option, its value, of which task."""


def find(
    given: Mapping[str, Any], own_tasks: Mapping[str, str], *, reap_limit_seconds: float
) -> list[str]:
    """Return one sentence for each contradiction.

    Args:
        given: the celeryconfig.py's settings.
        own_tasks: reaper's tasks, each with its queue.
        reap_limit_seconds: the longest limit of a task that has no soft limit of its own.
    """
    faults = [
        *_values(given, reap_limit_seconds),
        *_shapes(given),
        *_queues(given.get("task_queues"), set(own_tasks.values())),
        *_own_entries(given.get("beat_schedule"), own_tasks),
    ]
    tasks: dict[tuple[str, str, str], list[str]] = {}
    for find_in, key in (
        (_schedule, "beat_schedule"),
        (_routes, "task_routes"),
        (_annotations, "task_annotations"),
    ):
        for where, option, value, task in find_in(given.get(key), own_tasks):
            tasks.setdefault((where, option, value), []).append(task)
    faults += [
        f"{where} sets {option}={value} for {', '.join(dict.fromkeys(names))}: reaper decides that "
        "itself, from its REAPER_* settings; name your own tasks there"
        for (where, option, value), names in tasks.items()
    ]
    return [f"celeryconfig.py: {fault}" for fault in faults]


def _values(given: Mapping[str, Any], reap_limit_seconds: float) -> Iterator[str]:
    accepted = given.get("accept_content", ["json"])
    if not isinstance(accepted, list | tuple | set) or not accepted or not set(accepted) <= _JSON:
        yield (
            f"accept_content={accepted!r} is not allowed: reaper's workers accept ['json'] and "
            "nothing else, other formats can run code"
        )
    for key in ("task_serializer", "event_serializer"):
        if given.get(key, "json") != "json":
            yield f"{key}={given[key]!r} is not allowed: reaper's messages are 'json'"
    pool = given.get("worker_pool", "prefork")
    if pool not in _PREFORK:
        yield (f"worker_pool={pool!r} is not allowed: only 'prefork' keeps the hooks' time limits")
    if given.get("task_always_eager"):
        yield "task_always_eager is not allowed: beat would run the reap and the hooks itself"
    if given.get("task_default_rate_limit") is not None:
        yield (
            "task_default_rate_limit is not allowed: it slows reaper's own tasks too; give your "
            "tasks a rate_limit each"
        )
    soft = given.get("task_soft_time_limit")
    if soft is not None and not (_is_number(soft) and soft >= reap_limit_seconds):
        yield (
            f"task_soft_time_limit={soft!r} is not allowed: it would end reaper's ticks early; "
            f"give your tasks a soft_time_limit each, or take at least {reap_limit_seconds:g}"
        )
    for key in ("broker_read_url", "broker_write_url"):
        if given.get(key):
            yield f"{key} is not allowed: reaper has one broker, set broker_url"


def _shapes(given: Mapping[str, Any]) -> Iterator[str]:
    for key, kind, said in (
        ("task_queues", list | tuple | Mapping, "a list of kombu.Queue or a dict"),
        ("beat_schedule", Mapping, "a dict"),
        ("broker_transport_options", Mapping, "a dict"),
    ):
        value = given.get(key)
        if value is not None and not isinstance(value, kind):
            yield f"{key} is of type {type(value).__name__}: it takes {said}"
    annotations = given.get("task_annotations")
    try:
        _annotated(annotations, "")
    except Exception as error:  # noqa: BLE001 -- the deployment's own code
        yield (
            f"task_annotations cannot be read ({type(error).__name__}): it takes a dict such as "
            "{'myproject.task': {'rate_limit': '10/s'}}"
        )


def _queues(queues: Any, own: set[str]) -> Iterator[str]:
    for queue in queues if isinstance(queues, list | tuple | Mapping) else ():
        name = queue.name if isinstance(queue, Queue) else queue
        if name in own:
            yield f"task_queues defines {name!r}, reaper's own queue: take it out"


def _own_entries(schedule: Any, own_tasks: Mapping[str, str]) -> Iterator[str]:
    for name in schedule if isinstance(schedule, Mapping) else ():
        if name in own_tasks:
            yield (
                f"beat_schedule[{name!r}] is reaper's own entry, its schedule comes from REAPER_* "
                "settings: take it out or give yours another name"
            )


def _schedule(schedule: Any, own_tasks: Mapping[str, str]) -> Iterator[Overruled]:
    for name, entry in schedule.items() if isinstance(schedule, Mapping) else ():
        fields = entry if isinstance(entry, Mapping) else vars(entry)  # a ScheduleEntry is allowed
        task = str(fields.get("task"))
        if task in own_tasks and name not in own_tasks:
            where = f"beat_schedule[{name!r}]"
            yield from _governed(where, task, own_tasks[task], fields.get("options"))


def _routes(routes: Any, own_tasks: Mapping[str, str]) -> Iterator[Overruled]:
    """Reaper's own routes come first, so `*` and routing functions only see other tasks."""
    for route in routes if isinstance(routes, list | tuple) else [routes]:
        if isinstance(route, Mapping):
            named = MapRoute({pattern: to for pattern, to in route.items() if pattern != "*"})
            for task, queue in own_tasks.items():
                yield from _governed("task_routes", task, queue, named(task))


def _annotations(annotations: Any, own_tasks: Mapping[str, str]) -> Iterator[Overruled]:
    with suppress(Exception):  # told by _shapes
        for task, queue in own_tasks.items():
            for options in _annotated(annotations, task):
                yield from _governed("task_annotations", task, queue, options)


def _annotated(annotations: Any, task: str) -> list[dict[str, Any]]:
    """What Celery would set on `task`."""
    stand_in = SimpleNamespace(name=task)
    return [
        {**(each.annotate_any() or {}), **(each.annotate(stand_in) or {})}
        for each in prepare(annotations)
    ]


def _governed(where: str, task: str, queue: str, options: Any) -> Iterator[Overruled]:
    """Each option of `options` that reaper decides for `task`."""
    for option in sorted(_GOVERNED & set(options or {})):
        value = options[option]
        if option != "queue" or getattr(value, "name", value) != queue:
            yield where, option, repr(value), task


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
