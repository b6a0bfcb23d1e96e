"""Calls one handler and turns whatever it does into a value. Must not import Celery or psycopg2.

User code begins and ends here: what it raises, however strange, becomes an `Outcome` with a bounded
and cleaned text.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from reaper.jobs import HookState
from reaper.registry import Registration
from reaper.store.ledger import ClaimedHook

ERROR_LIMIT = 2_000
"""Characters of a handler's error kept in the ledger: a page on the screen."""

TYPE_LIMIT = 100
"""Characters of an exception type's name that go into logs and to Flower."""

Guard = Callable[[], AbstractContextManager[None]]
"""Arms the time limits around the handler, and disarms them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended. `state` None: nothing was run (a duplicate, a throttled type).

    `error_type` is the name of the exception type only: its text may hold a payload.
    """

    state: HookState | None
    error_type: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is owed: whose handler, for which hook, with what beside the usual three."""

    claimed: ClaimedHook
    registration: Registration
    extra: tuple[Any, ...] = ()


def call(owed: Call, guard: Guard, soft_limit: type[BaseException]) -> Outcome:
    """Decode the payload, call the handler within its limits, and return how that ended.

    Args:
        owed: the handler and its arguments.
        guard: arms and disarms the limits.
        soft_limit: what is raised in the handler when its time is up. A handler that wraps it in an
            error of its own has timed out too.
    """
    try:
        payload = json.loads(owed.claimed.payload_json)
    except (ValueError, RecursionError, MemoryError) as error:
        text = f"the payload cannot be decoded in Python: {error}"
        return Outcome(HookState.FAILED, "PayloadUndecodable", clean(text))
    try:
        with guard():
            _invoke(owed, payload, soft_limit)
    # The one broad except: a handler may raise anything, sys.exit() and KeyboardInterrupt included,
    # and none of it may touch another hook or the worker.
    except BaseException as error:  # noqa: BLE001
        if any(isinstance(e, soft_limit) for e in _behind(error)):
            return Outcome(HookState.TIMED_OUT, "SoftTimeLimitExceeded", "soft time limit reached")
        return Outcome(HookState.FAILED, _type_name(error), describe(error))
    return Outcome(HookState.COMPLETED)


def clean(text: str) -> str:
    """Return `text` as PostgreSQL can keep it: no NUL, no lone surrogates, bounded, printable."""
    whole = text[:ERROR_LIMIT].encode("utf-8", "replace").decode("utf-8")
    kept = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in whole
    )
    return kept + ("..." if len(text) > ERROR_LIMIT else "")


def describe(error: BaseException) -> str:
    """Return type and text of a handler's exception, cleaned; its `__str__` may itself raise."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 -- user code again
        text = "(its text cannot be read)"
    name = _type_name(error)
    return clean(f"{name}: {text}" if text else name)


def _type_name(error: BaseException) -> str:
    return clean(type(error).__name__[:TYPE_LIMIT])


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and everything it was raised from or groups."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def _invoke(owed: Call, payload: Any, soft_limit: type[BaseException]) -> None:
    claimed = owed.claimed
    result = owed.registration.handler(claimed.context, payload, claimed.dead_letter, *owed.extra)
    if inspect.isawaitable(result):
        asyncio.run(_finish(result, soft_limit))


async def _finish(awaitable: Any, soft_limit: type[BaseException]) -> None:
    """Await an async handler so that the soft limit always cancels it.

    The limit is raised wherever the interpreter stands: in the handler's own frames, in the loop
    (which then ends, and cancels all), but also in another task of the handler's or in a callback,
    where nobody may ever look. From there it is passed on: the handler's task is cancelled.
    """
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None  # noqa: S101 -- for the type checker
    reached: list[BaseException] = []

    def pass_on(error: BaseException) -> None:
        reached.append(error)
        main.cancel()

    async def watched(coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except soft_limit as error:
            pass_on(error)
            raise

    def hear(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), soft_limit):
            pass_on(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(hear)
    loop.set_task_factory(
        lambda loop, coroutine, **more: asyncio.Task(watched(coroutine), loop=loop, **more)
    )
    try:
        await awaitable
    except BaseException:
        if reached:
            raise reached[0] from None
        raise
