"""The handler's call: what it is given, and what becomes of whatever it raises."""

import logging
import sys
from functools import partial

import pytest

from reaper.calling import ERROR_LIMIT, clean, describe
from reaper.hooks import Outcome
from reaper.jobs import HookState
from reaper.registry import JobHandler
from tests.harness.rows import fetch, hook_states, hooks, insert_hook
from tests.hooks.conftest import SoftLimitReachedError, limited


def run_raising(runner, registry, connect, error: BaseException | type[BaseException]):
    """Run a handler that raises `error`; return the outcome and the ledger row."""

    def handler(*_):
        raise error

    registry.add("demo", handler)
    connection = connect()
    outcome = runner().run(insert_hook(connection), 1)
    return outcome, hooks(connection)[0]


@pytest.mark.parametrize(
    ("payload", "arrives"),
    [
        ('"a string"', "a string"),
        ("[]", []),
        ("null", None),
        ("false", False),
        ("0", 0),
        ("1e400", 10**400),
        ("1234567890123456789012345", 1234567890123456789012345),
        ('{"n": -9999999999999999999999999}', {"n": -(10**25 - 1)}),
        ('"%s"' % ("x" * 1_000_000), "x" * 1_000_000),
        ('"\\ud83d\\ude00 \\u007f"', "\N{GRINNING FACE} \x7f"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_payload_arrives_whole(runner, registry, connect, payload, arrives):
    """Case 9: any JSON shape is delivered, integers unrounded."""
    seen = []
    registry.add("demo", lambda _context, payload, _dead: seen.append(payload))
    hook_id = insert_hook(connect(), payload=payload)
    assert runner().run(hook_id, 1).state is HookState.COMPLETED
    assert seen == [arrives]
    assert type(seen[0]) is type(arrives)


def test_payload_arrives_whole_when_it_is_nested_900_deep(runner, registry, connect):
    """Case 9: nesting 900 deep."""
    seen = []
    registry.add("demo", lambda _context, payload, _dead: seen.append(payload))
    hook_id = insert_hook(connect(), payload="[" * 900 + "]" * 900)
    assert runner().run(hook_id, 1).state is HookState.COMPLETED
    value, depth = seen[0], 1
    while value:
        value, depth = value[0], depth + 1
    assert depth == 900


@pytest.mark.parametrize(
    ("payload", "because"),
    [("9" * 5_000, "4300 digits"), ("[" * 3_000 + "]" * 3_000, "recursion")],
    ids=["5,000 digits", "3,000 deep"],
)
def test_hook_fails_with_a_sentence_when_python_cannot_decode_its_payload(
    runner, registry, connect, payload, because
):
    """Case 9: an integer of 5,000 digits; the sentence holds nothing of the payload."""
    registry.add("demo", lambda *_: pytest.fail("it was called"))
    connection = connect()
    hook_id = insert_hook(connection, payload=payload)
    assert runner().run(hook_id, 1).state is HookState.FAILED
    (row,) = fetch(connection, "SELECT error FROM reaper.terminal_hooks")
    assert row["error"].startswith("the payload cannot be decoded in Python: ")
    assert because in row["error"]
    assert "999" not in row["error"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b", "ValueError: a\N{REPLACEMENT CHARACTER}b"),
        ("a\ud800b", "ValueError: a?b"),
        ("two\nlines\tand", "ValueError: two\nlines\tand"),
        ("\x1b[31mred", "ValueError: \N{REPLACEMENT CHARACTER}[31mred"),
        ("", "ValueError"),
    ],
    ids=["NUL", "lone surrogate", "lines", "escape", "empty"],
)
def test_error_text_is_recorded_cleaned(runner, registry, connect, text, kept):
    """Case 26: NUL characters and lone surrogates."""
    outcome, row = run_raising(runner, registry, connect, ValueError(text))
    assert (outcome.state, outcome.error_type) == (HookState.FAILED, "ValueError")
    assert (row["state"], row["error"]) == ("failed", kept)


def test_error_text_is_recorded_cut_when_it_is_a_megabyte(runner, registry, connect):
    """Case 26: a megabyte."""
    _, row = run_raising(runner, registry, connect, ValueError("x" * 1_000_000))
    assert row["error"] == "ValueError: " + "x" * (ERROR_LIMIT - 12) + "..."


@pytest.mark.parametrize("inner", [ValueError, SystemExit, RecursionError])
def test_error_is_recorded_when_its_own_text_raises(runner, registry, connect, inner):
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise inner

    _, row = run_raising(runner, registry, connect, UnreadableError())
    assert row["error"] == "UnreadableError: (its text cannot be read)"


def test_error_type_is_cleaned_and_cut_when_its_name_is_strange(runner, registry, connect):
    strange = type("E\n\x1b" + "x" * 10_000, (Exception,), {})
    outcome, row = run_raising(runner, registry, connect, strange("text"))
    assert outcome.error_type == "E\n\N{REPLACEMENT CHARACTER}" + "x" * 97
    assert row["error"] == outcome.error_type + ": text"


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(0),
        SystemExit("bye"),
        KeyboardInterrupt,
        GeneratorExit,
        BaseException("odd"),
        ExceptionGroup("many", [ValueError("a"), TypeError("b")]),
        BaseExceptionGroup("many", [KeyboardInterrupt()]),
        StopIteration,
        MemoryError,
    ],
    ids=repr,
)
def test_hook_fails_whatever_its_handler_raises(runner, registry, connect, error):
    """Case 27: sys.exit(), KeyboardInterrupt, GeneratorExit, BaseException: recorded as failed."""
    outcome, row = run_raising(runner, registry, connect, error)
    assert outcome.state is HookState.FAILED
    assert row["state"] == "failed"
    assert row["error"].startswith(outcome.error_type)


def test_hook_fails_when_its_handler_exits(runner, registry, connect):
    registry.add("demo", lambda *_: sys.exit(3))
    connection = connect()
    assert runner().run(insert_hook(connection), 1).error_type == "SystemExit"
    assert hook_states(connection) == {"failed": 1}


def test_hook_times_out_when_the_soft_limit_is_reached(runner, registry, connect):
    """Case 23, in process: ended at the soft limit, recorded `timed_out`, the next hook runs."""
    from threading import Event  # noqa: PLC0415 -- something to hang on

    registry.add("hangs", lambda *_: Event().wait(30))
    registry.add("demo", lambda *_: None)
    connection = connect()
    worker = runner(guard=partial(limited, 0.2))
    outcome = worker.run(insert_hook(connection, job_type="hangs"), 1)
    assert outcome == Outcome(
        HookState.TIMED_OUT, "SoftTimeLimitExceeded", "soft time limit reached"
    )
    assert worker.run(insert_hook(connection), 1).state is HookState.COMPLETED
    assert hook_states(connection) == {"timed_out": 1, "completed": 1}


def reached() -> None:
    raise SoftLimitReachedError


def wrapped_as_cause() -> None:
    try:
        reached()
    except SoftLimitReachedError as error:
        raise RuntimeError("the library's own") from error


def wrapped_as_context() -> None:
    try:
        reached()
    finally:
        raise RuntimeError("while cleaning up")


def wrapped_in_a_group() -> None:
    raise ExceptionGroup("tasks", [ValueError("other"), SoftLimitReachedError()])


@pytest.mark.parametrize("wrap", [wrapped_as_cause, wrapped_as_context, wrapped_in_a_group])
def test_hook_times_out_when_a_library_wraps_the_limit(runner, registry, connect, wrap):
    """Else a type that hangs would count as one that fails, and never be throttled."""
    registry.add("demo", lambda *_: wrap())
    assert runner().run(insert_hook(connect()), 1).state is HookState.TIMED_OUT


def test_type_without_a_handler_is_unhandled_and_said_once_per_type(
    runner, registry, connect, caplog
):
    connection, worker = connect(), runner()
    with caplog.at_level(logging.WARNING, "reaper"):
        for job_type in ("a", "a", "b", "a"):
            outcome = worker.run(insert_hook(connection, job_type=job_type), 1)
            assert outcome == Outcome(HookState.UNHANDLED)
    assert [record.fields for record in caplog.records] == [{"job_type": "a"}, {"job_type": "b"}]
    assert hook_states(connection) == {"unhandled": 4}


def test_catch_all_gets_the_types_without_their_own_handler(runner, registry, connect):
    seen = []
    registry.add("*", lambda context, *_: seen.append(("*", context.job_type)))
    registry.add("own", lambda context, *_: seen.append(("own", context.job_type)))
    connection, worker = connect(), runner()
    for job_type in ("own", "other", "*"):
        worker.run(insert_hook(connection, job_type=job_type), 1)
    assert seen == [("own", "own"), ("*", "other"), ("*", "*")]


def test_handler_may_be_an_object_of_a_class(runner, registry, connect):
    class Notify(JobHandler):
        job_type = "demo"
        max_tries = 2

        def on_dead_letter(self, context, payload, dead_letter):
            raise ValueError(payload)

    registry.register(Notify())
    connection = connect()
    runner().run(insert_hook(connection, payload='"no"'), 1)
    (row,) = hooks(connection)
    assert (row["state"], row["max_tries"], row["error"]) == ("pending", 2, "ValueError: no")


def test_no_payload_and_no_error_text_is_logged(runner, registry, connect, caplog):
    """Payloads and handlers' texts stay in PostgreSQL."""
    with caplog.at_level(logging.DEBUG, "reaper"):

        def handler(_context, payload, _dead):
            raise ValueError(payload)

        registry.add("demo", handler)
        runner().run(insert_hook(connect(), payload='"secret"'), 1)
    assert "hook_failed" in caplog.text
    assert "secret" not in caplog.text


def test_describe_names_the_type_and_clean_bounds_the_text():
    assert describe(ValueError("x")) == "ValueError: x"
    assert clean("y" * (ERROR_LIMIT + 1)) == "y" * ERROR_LIMIT + "..."
