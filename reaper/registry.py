"""Which handler answers for which job type. Must not import Celery or psycopg2.

Handlers are known to hook workers only: a broken handler module never stops the reaping.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reaper.errors import RegistryError
from reaper.jobs import JobContext, JobDeadLetterInfo

ANY_TYPE = "*"
"""The job type of a handler that catches what has none of its own."""

Handler = Callable[..., Any]
"""`handler(context, payload, dead_letter)`, plain or async; its result is ignored. With
`transactional=True` a psycopg2 connection is the fourth argument."""


class JobHandler:
    """A handler as a class: set `job_type`, override `on_dead_letter`, register an instance.

    Attributes:
        job_type: which jobs it answers for, or "*".
        max_tries: how often it is called until it returns; 1 as in the original.
        transactional: whether its effects and `completed` commit together.
    """

    job_type: str
    max_tries: int = 1
    transactional: bool = False

    def on_dead_letter(
        self, context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo
    ) -> Any:
        """Be told of a dead job. May be `async def`. At least once: must be idempotent."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Registration:
    """One handler and where it was registered."""

    job_type: str
    handler: Handler
    max_tries: int
    transactional: bool
    place: str


@dataclass(slots=True)
class JobRegistry:
    """Handlers by job type."""

    _by_type: dict[str, Registration] = field(default_factory=dict)

    def register(self, handler: JobHandler) -> JobHandler:
        """Register a handler object; returns it.

        Raises:
            RegistryError: its type is blank or taken, or its options are out of range.
        """
        self.add(
            handler.job_type,
            handler.on_dead_letter,
            max_tries=handler.max_tries,
            transactional=handler.transactional,
        )
        return handler

    def add(
        self, job_type: str, handler: Handler, *, max_tries: int = 1, transactional: bool = False
    ) -> None:
        """Register a function for `job_type`. Registering the same function again does nothing.

        Raises:
            RegistryError: the type is blank or taken, or an option is out of range.
        """
        place = _place(handler)
        if not isinstance(job_type, str) or not job_type.strip():
            raise RegistryError(f"{place} registers for job type {job_type!r}: name a job type")
        if isinstance(max_tries, bool) or not isinstance(max_tries, int) or max_tries < 1:
            raise RegistryError(
                f"{place} asks for max_tries={max_tries!r}: it takes a whole number from 1"
            )
        known = self._by_type.get(job_type)
        if known and known.place != place:
            raise RegistryError(
                f"job type {job_type!r} has two handlers, {known.place} and {place}: remove one"
            )
        self._by_type[job_type] = Registration(job_type, handler, max_tries, transactional, place)

    def get(self, job_type: str) -> Registration | None:
        """Return the handler of `job_type`, else the one for "*", else None."""
        return self._by_type.get(job_type) or self._by_type.get(ANY_TYPE)

    def job_types(self) -> list[str]:
        """Return the types that have a handler, sorted; "*" among them."""
        return sorted(self._by_type)

    def max_tries(self) -> dict[str, int]:
        """Return the tries of each type, for the claim. Types without an entry get those of "*"."""
        return {job_type: entry.max_tries for job_type, entry in self._by_type.items()}


registry = JobRegistry()
"""The registry of this process, filled by `@on_dead_letter` when handler modules are imported."""


def on_dead_letter(
    job_type: str, *, max_tries: int = 1, transactional: bool = False
) -> Callable[[Handler], Handler]:
    """Register the decorated function for dead jobs of `job_type` ("*": all without their own).

    The function is called as `handler(context, payload, dead_letter)`, plain or async, in a hook
    worker, at most once at a time for one death, and at least once: it must be idempotent.

    Args:
        job_type: which jobs.
        max_tries: calls until one returns, with exponential backoff between them.
        transactional: pass a psycopg2 connection as fourth argument; what the handler does with it
            commits together with the hook's completion, exactly once.

    Raises:
        RegistryError: the type has another handler already; names both places.
    """

    def register(handler: Handler) -> Handler:
        registry.add(job_type, handler, max_tries=max_tries, transactional=transactional)
        return handler

    return register


def load_handlers(modules: Iterable[str]) -> list[str]:
    """Import handler modules, also from the current directory; return the types registered.

    Safe to repeat.

    Raises:
        RegistryError: a module does not import: its name, the reason and where.
    """
    if os.getcwd() not in sys.path:  # the `celery` command does not have it there for good
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except RegistryError:
            raise
        except Exception as error:  # a user's module may raise anything on import
            raise RegistryError(
                f"handler module {module!r} (REAPER_HANDLERS) does not import: "
                f"{type(error).__name__}: {error}{_raised_at(error)}; mend it, or take it out of "
                "REAPER_HANDLERS"
            ) from error
    return registry.job_types()


def _place(handler: Handler) -> str:
    function = inspect.unwrap(getattr(handler, "__func__", handler))
    code = getattr(function, "__code__", None)
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _raised_at(error: BaseException) -> str:
    traceback = error.__traceback__
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    if traceback is None or "importlib" in traceback.tb_frame.f_code.co_filename:
        return ""
    return f" ({traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno})"
