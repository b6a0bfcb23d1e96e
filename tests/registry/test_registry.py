"""Handlers are registered once per type, and what could never run is refused at once."""

import functools

import pytest

from reaper.errors import RegistryError
from reaper.registry import JobHandler, JobRegistry, on_dead_letter


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry()


def one(context, payload, dead_letter):
    """A handler."""


def other(context, payload, dead_letter):
    """Another handler."""


def line(function) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno}"


class Notify(JobHandler):
    job_type = "notify"

    def on_dead_letter(self, context, payload, dead_letter):
        """Notify."""


def test_second_handler_of_a_type_is_refused_with_both_places(registry):
    """Registration twice names both places: module, function, file and line."""
    registry.add("demo", one)
    with pytest.raises(RegistryError) as caught:
        registry.add("demo", other)
    assert str(caught.value) == (
        f"job type 'demo' has two handlers, tests.registry.test_registry.one ({line(one)}) and "
        f"tests.registry.test_registry.other ({line(other)}): remove one"
    )
    assert registry.get("demo").handler is one


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Notify().on_dead_letter, Notify().on_dead_letter),
        (functools.partial(one), functools.partial(one)),
        (lambda a, b, c: 1, lambda a, b, c: 2),
    ],
    ids=["two objects of a class", "two partials", "two lambdas"],
)
def test_second_handler_of_a_type_is_refused_when_both_stand_at_one_place(registry, first, second):
    registry.add("demo", first)
    with pytest.raises(RegistryError, match="has two handlers"):
        registry.add("demo", second)


def test_second_handler_of_a_type_is_refused_when_one_function_made_both(registry):
    def make(number):
        def handler(context, payload, dead_letter):
            return number

        return handler

    registry.add("demo", make(1))
    with pytest.raises(RegistryError, match=r"make\.<locals>\.handler"):
        registry.add("demo", make(2))


def test_same_handler_may_be_registered_again(registry):
    notify = Notify()
    for _ in range(2):
        registry.add("demo", one)
        registry.register(notify)
    assert registry.job_types() == ["demo", "notify"]


def test_handler_of_a_module_that_is_imported_anew_replaces_itself(registry):
    namespace: dict = {}
    code = compile("def handler(a, b, c): pass", "handlers.py", "exec")
    for _ in range(2):
        exec(code, {"__name__": "handlers"}, namespace)  # noqa: S102 -- as a reload does
        registry.add("demo", namespace["handler"])
    assert registry.get("demo").handler is namespace["handler"]


@pytest.mark.parametrize("job_type", ["", "  ", None, 7, b"demo", "nul\0", "half \ud800"])
def test_job_type_that_no_job_can_have_is_refused(registry, job_type):
    with pytest.raises(RegistryError, match="job type"):
        registry.add(job_type, one)


@pytest.mark.parametrize("max_tries", [0, -1, 1.5, "2", True, None, 10**7])
def test_tries_out_of_range_are_refused(registry, max_tries):
    with pytest.raises(RegistryError, match="a whole number from 1 to 1000000"):
        registry.add("demo", one, max_tries=max_tries)


def test_option_that_is_no_yes_or_no_is_refused(registry):
    with pytest.raises(RegistryError, match="transactional='yes'"):
        registry.add("demo", one, transactional="yes")


async def streams(context, payload, dead_letter):
    yield 1


def yields(context, payload, dead_letter):
    yield 1


@pytest.mark.parametrize("handler", [streams, yields])
def test_generator_is_refused_because_it_would_never_run(registry, handler):
    with pytest.raises(RegistryError, match="is a generator"):
        registry.add("demo", handler)


@pytest.mark.parametrize(
    ("handler", "transactional"),
    [
        (lambda: None, False),
        (lambda a, b: None, False),
        (lambda a, b, c, d: None, False),
        (one, True),
        (lambda a, b, c, *, d: None, False),
    ],
)
def test_handler_that_cannot_be_called_as_one_is_refused(registry, handler, transactional):
    with pytest.raises(RegistryError, match=r"is called with \(context, payload, dead_letter"):
        registry.add("demo", handler, transactional=transactional)


@pytest.mark.parametrize(
    "handler",
    [
        lambda *everything: None,
        lambda a, b, c, d=None: None,
        functools.partial(lambda x, a, b, c: None, 1),
        Notify().on_dead_letter,
    ],
)
def test_handler_that_can_be_called_as_one_is_taken(registry, handler):
    registry.add("demo", handler)
    assert registry.get("demo").handler == handler


def test_handler_that_is_no_function_is_refused(registry):
    with pytest.raises(RegistryError, match="42 is no handler"):
        registry.add("demo", 42)


def test_decorator_without_a_job_type_is_refused():
    with pytest.raises(RegistryError, match=r"write @on_dead_letter\(\"the job type\"\)"):
        on_dead_letter(one)


def test_decorator_returns_the_function_itself():
    assert on_dead_letter("tests.registry.decorated")(one) is one


class Silent(JobHandler):
    job_type = "silent"


class Nameless(JobHandler):
    def on_dead_letter(self, context, payload, dead_letter):
        """Never asked."""


@pytest.mark.parametrize(
    ("handler", "because"),
    [
        (Notify, "register an instance"),
        (object(), "is no JobHandler object"),
        (Silent(), "has no on_dead_letter of its own"),
        (Nameless(), "name a job type"),
    ],
)
def test_object_that_is_no_handler_is_refused(registry, handler, because):
    with pytest.raises(RegistryError, match=because):
        registry.register(handler)


def test_tries_are_listed_by_type(registry):
    registry.add("*", one, max_tries=3)
    registry.add("demo", other)
    assert registry.max_tries() == {"*": 3, "demo": 1}
    assert registry.get("anything").handler is one
    assert registry.job_types() == ["*", "demo"]
