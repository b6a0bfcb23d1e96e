"""Async handlers: run to their end, cancelled at the soft limit wherever that finds them."""

import asyncio
import time
from functools import partial

import pytest

from reaper.jobs import HookState
from tests.harness.rows import hooks, insert_hook
from tests.hooks.conftest import SoftLimitReachedError, limited


def run(runner, registry, connect, handler, *, seconds: float = 0.3):
    """Run an async handler under a soft limit of `seconds`."""
    registry.add("demo", handler)
    connection = connect()
    began = time.monotonic()
    outcome = runner(guard=partial(limited, seconds)).run(insert_hook(connection), 1)
    assert time.monotonic() - began < 20  # the handlers here would take 60 s
    assert hooks(connection)[0]["state"] == outcome.state.value
    return outcome.state


def test_async_handler_completes(runner, registry, connect):
    seen = []

    async def handler(context, payload, dead_letter):
        await asyncio.sleep(0)
        seen.append(payload)

    assert run(runner, registry, connect, handler, seconds=30) is HookState.COMPLETED
    assert seen == [{}]


def test_async_handler_that_raises_fails(runner, registry, connect):
    async def handler(*_):
        raise ValueError("no")

    assert run(runner, registry, connect, handler, seconds=30) is HookState.FAILED


def test_async_handler_is_cancelled_at_the_soft_limit(runner, registry, connect):
    """Cancelled with its tasks, and its generators are closed, before the outcome is recorded."""
    ended = []

    async def numbers():
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            ended.append("generator")

    async def background():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("task")
            raise

    async def handler(*_):
        task = asyncio.create_task(background())
        try:
            async for _number in numbers():
                await asyncio.sleep(60)
        finally:
            ended.append("handler")
            assert not task.done()

    assert run(runner, registry, connect, handler) is HookState.TIMED_OUT
    assert sorted(ended) == ["generator", "handler", "task"]


def test_async_handler_is_cancelled_when_the_limit_finds_another_task_of_its(
    runner, registry, connect
):
    """The limit is raised in a task nobody waits for: the handler ends all the same."""
    ended = []

    async def busy():
        while True:
            time.sleep(0.01)  # noqa: ASYNC251 -- so that the limit is raised in here
            await asyncio.sleep(0)

    async def handler(*_):
        task = asyncio.create_task(busy())
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(task.done())

    assert run(runner, registry, connect, handler) is HookState.TIMED_OUT
    assert len(ended) == 1


def test_async_handler_is_cancelled_when_the_limit_finds_a_callback(runner, registry, connect):
    """The loop would only log what is raised in a callback of its own."""

    async def handler(*_):
        loop = asyncio.get_running_loop()

        def again() -> None:
            time.sleep(0.01)
            loop.call_soon(again)

        loop.call_soon(again)
        await asyncio.sleep(60)

    assert run(runner, registry, connect, handler) is HookState.TIMED_OUT


def test_async_handler_times_out_when_its_task_group_wraps_the_limit(runner, registry, connect):
    async def busy():
        while True:
            time.sleep(0.01)  # noqa: ASYNC251 -- so that the limit is raised in here
            await asyncio.sleep(0)

    async def handler(*_):
        async with asyncio.TaskGroup() as group:
            group.create_task(busy())
            group.create_task(asyncio.sleep(60))

    assert run(runner, registry, connect, handler) is HookState.TIMED_OUT


def test_async_handler_fails_when_it_cancels_itself(runner, registry, connect):
    """A cancellation that is not the limit's is a failure like any other."""

    async def handler(*_):
        raise asyncio.CancelledError

    assert run(runner, registry, connect, handler, seconds=30) is HookState.FAILED


def test_async_handler_completes_when_it_only_looks_away_from_a_tasks_error(
    runner, registry, connect
):
    """A task's own error is the handler's business."""

    async def breaks():
        raise ValueError("not awaited")

    async def handler(*_):
        results = await asyncio.gather(breaks(), return_exceptions=True)
        assert isinstance(results[0], ValueError)

    assert run(runner, registry, connect, handler, seconds=30) is HookState.COMPLETED


def test_handler_may_return_an_awaitable(runner, registry, connect):
    seen = []

    async def later():
        seen.append("awaited")

    registry.add("demo", lambda *_: later())
    assert runner().run(insert_hook(connect()), 1).state is HookState.COMPLETED
    assert seen == ["awaited"]


def test_soft_limit_is_raised_to_the_runner_as_it_is():
    """The stand-in behaves as the worker's own exception does."""
    with pytest.raises(SoftLimitReachedError), limited(0.05):
        time.sleep(10)
