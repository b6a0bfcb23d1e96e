"""Which handler answers for which job type. Must not import Celery or psycopg2.

Handlers are known to hook workers only: a broken handler module never stops the reaping.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reaper.errors import RegistryError
from reaper.jobs import JobContext, JobDeadLetterInfo
from reaper.urls import mask

ANY_TYPE = "*"
"""The job type of a handler that catches what has none of its own."""

MAX_TRIES_LIMIT = 1_000_000
"""More is rather a mistake than meant: with the longest backoff it is a century."""

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
            RegistryError: it is a class, has no job type or no `on_dead_letter`, or as in `add`.
        """
        if isinstance(handler, type) or not isinstance(handler, JobHandler):
            raise RegistryError(
                f"{handler!r} is no JobHandler object: derive a class from JobHandler and register "
                "an instance of it"
            )
        if type(handler).on_dead_letter is JobHandler.on_dead_letter:
            raise RegistryError(
                f"{_place(type(handler))} has no on_dead_letter of its own: define it"
            )
        self.add(
            getattr(handler, "job_type", None),
            handler.on_dead_letter,
            max_tries=handler.max_tries,
            transactional=handler.transactional,
        )
        return handler

    def add(
        self,
        job_type: Any,
        handler: Handler,
        *,
        max_tries: int = 1,
        transactional: bool = False,
    ) -> None:
        """Register a function for `job_type`. Registering the same function again does nothing.

        Raises:
            RegistryError: the type is no name or taken, the handler cannot be called as one, or an
                option is out of range.
        """
        place = _place(handler)
        _check_type(job_type, place)
        _check_options(max_tries, transactional, place)
        _check_handler(handler, transactional, place)
        known = self._by_type.get(job_type)
        if known and not _is_same(known.handler, handler):
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
        RegistryError: the type has another handler already (names both places), or what
            `JobRegistry.add` refuses.
    """
    _check_type(job_type, "@on_dead_letter")

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
    here = str(Path.cwd())
    if here not in sys.path:  # the `celery` command does not have it there for good
        sys.path.insert(0, here)
    for module in modules:
        try:
            importlib.import_module(module)
        except RegistryError:
            raise
        except KeyboardInterrupt:
            raise
        # A user's module may raise anything on import, and sys.exit() would end the worker mute.
        except BaseException as error:
            raise RegistryError(
                f"handler module {module!r} (REAPER_HANDLERS) does not import: "
                f"{type(error).__name__}: {mask(str(error))}{_raised_at(error)}; mend it, or take "
                "it out of REAPER_HANDLERS"
            ) from error
    return registry.job_types()


def _check_type(job_type: object, place: str) -> None:
    if callable(job_type):
        raise RegistryError(
            f"{_place(job_type)} is registered for no job type: write "
            '@on_dead_letter("the job type")'
        )
    if not isinstance(job_type, str) or not job_type.strip():
        raise RegistryError(f"{place} registers for job type {job_type!r}: name a job type")
    try:
        storable = b"\0" not in job_type.encode()
    except UnicodeEncodeError:
        storable = False
    if not storable:
        raise RegistryError(
            f"{place} registers for job type {job_type!r}, which PostgreSQL cannot hold: take the "
            "NUL or surrogate out"
        )


def _check_options(max_tries: object, transactional: object, place: str) -> None:
    is_whole = isinstance(max_tries, int) and not isinstance(max_tries, bool)
    if not is_whole or not 1 <= max_tries <= MAX_TRIES_LIMIT:  # type: ignore[operator]
        raise RegistryError(
            f"{place} asks for max_tries={max_tries!r}: it takes a whole number from 1 to "
            f"{MAX_TRIES_LIMIT}"
        )
    if not isinstance(transactional, bool):
        raise RegistryError(f"{place} asks for transactional={transactional!r}: True or False")


def _check_handler(handler: Handler, transactional: bool, place: str) -> None:
    """Refuse what would fail at every call, or quietly do nothing, before the first notice."""
    if not callable(handler):
        raise RegistryError(f"{handler!r} is no handler: it cannot be called")
    names = ("context", "payload", "dead_letter", *(("connection",) if transactional else ()))
    function = _function(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistryError(f"{place} is a generator, its body would never run: take `yield` out")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # callable, or in C without a signature: the call will show it
    try:
        signature.bind(*names)
    except TypeError:
        raise RegistryError(
            f"{place} takes {signature}: a handler is called with ({', '.join(names)})"
        ) from None


def _is_same(known: Handler, handler: Handler) -> bool:
    """Whether these are one handler, perhaps of a module that was imported anew."""
    if known == handler:
        return True
    if not (inspect.isfunction(known) and inspect.isfunction(handler)) or handler.__closure__:
        return False
    return known.__code__ == handler.__code__ and _place(known) == _place(handler)


def _function(handler: object) -> Any:
    """The function that runs when `handler` is called, as far as it can be found."""
    handler = inspect.unwrap(handler) if callable(handler) else handler
    if isinstance(handler, functools.partial):
        return _function(handler.func)
    if inspect.isfunction(handler) or inspect.ismethod(handler) or isinstance(handler, type):
        return getattr(handler, "__func__", handler)
    return inspect.getattr_static(type(handler), "__call__", None)


def _place(handler: object) -> str:
    function = _function(handler)
    code = getattr(function, "__code__", None)
    owner = function if code or isinstance(function, type) else type(handler)
    name = f"{owner.__module__}.{owner.__qualname__}"
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _raised_at(error: BaseException) -> str:
    traceback = error.__traceback__
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    if traceback is None or "importlib" in traceback.tb_frame.f_code.co_filename:
        return ""
    return f" ({traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno})"
