"""P3: from COMMIT to all messages on the broker, beside plain apply_async and a pipelined LPUSH."""

import time
from collections.abc import Iterator
from typing import Any

import redis

from benchmarks.broker import flush, load_app
from benchmarks.stand import Stand
from benchmarks.suite import Result, at_least, interleaved, ratio, rounded
from reaper.jobs import HookRef

COUNT = 10_000
BATCH = 100
"""Dead letters of one reap batch at the default size, 1 in 5 exhausted: what is rung at once."""


def measure(stand: Stand) -> Iterator[Result]:
    """Ring 10 k doorbells in the batches of a reap."""
    app = load_app(stand)
    figures = interleaved(
        {
            "reaper": lambda: _doorbell(stand, app),
            "apply_async": lambda: _apply_async(stand),
            "LPUSH": lambda: _lpush(stand, app),
        },
        stand.rounds,
    )
    value = ratio(figures, "apply_async", "reaper")
    what = "apply_async / reaper, 10 k messages"
    yield at_least("P3", what, value, 3, "ratio", seconds=rounded(figures))
    far = ratio(figures, "reaper", "LPUSH")
    yield Result("P3", "reaper / pipelined LPUSH of the same bodies", far, "ratio", "report", None)


def _numbers(stand: Stand) -> range:
    return range(stand.scaled(COUNT))


def _hooks(stand: Stand) -> list[HookRef]:
    return [HookRef(n, 1, f"00000000-0000-0000-0000-{n:012}", "type_1") for n in _numbers(stand)]


def _doorbell(stand: Stand, app: Any) -> float:
    from reaper.publishing import Doorbell  # noqa: PLC0415 -- it loads the app

    flush(stand)
    doorbell, hooks = Doorbell(app), _hooks(stand)
    doorbell.publish(hooks[:1])  # connect, as a reap worker has long since
    flush(stand)
    began = time.perf_counter()
    for first in _numbers(stand)[::BATCH]:
        if not doorbell.publish(hooks[first : first + BATCH]):
            raise RuntimeError("the broker did not take the messages")
    seconds = time.perf_counter() - began
    doorbell.close()
    _check(stand)
    return seconds


def _apply_async(stand: Stand) -> float:
    from reaper.tasks import terminal_hook  # noqa: PLC0415 -- it loads the app

    hooks = _hooks(stand)
    terminal_hook.apply_async((0, 1))
    flush(stand)
    began = time.perf_counter()
    for hook in hooks:
        terminal_hook.apply_async((hook.hook_id, hook.try_number), argsrepr=hook.job_id)
    seconds = time.perf_counter() - began
    _check(stand)
    return seconds


def _lpush(stand: Stand, app: Any) -> float:
    with redis.Redis.from_url(stand.broker_url) as client:
        bodies = client.lrange(f"{_prefix(app)}terminal-hooks", 0, -1)
        if len(bodies) != stand.scaled(COUNT):
            _doorbell(stand, app)
            bodies = client.lrange(f"{_prefix(app)}terminal-hooks", 0, -1)
        client.flushall()
        began = time.perf_counter()
        for first in _numbers(stand)[::BATCH]:
            with client.pipeline(transaction=False) as pipeline:
                for body in bodies[first : first + BATCH]:
                    pipeline.lpush(f"{_prefix(app)}terminal-hooks", body)
                pipeline.execute()
        return time.perf_counter() - began


def _prefix(app: Any) -> str:
    return str(app.conf.broker_transport_options.get("global_keyprefix", ""))


def _check(stand: Stand) -> None:
    with redis.Redis.from_url(stand.broker_url) as client:
        lengths = [client.llen(key) for key in client.keys("*terminal-hooks")]
    if sum(lengths) != stand.scaled(COUNT):
        raise RuntimeError(f"{lengths} messages on the broker, not {stand.scaled(COUNT)}")
