"""Handlers that raise what they should not, and modules that do not import, on real workers."""

import pytest

from tests.faults.test_hooks_lost import HANDLERS, owe
from tests.harness.rows import effects, fetch, hook_states
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import doorbell

STRANGE = {
    "nul": "ValueError: a\N{REPLACEMENT CHARACTER}b",
    "surrogate": "ValueError: half ?",
    "megabyte": "ValueError: xxx",
    "unreadable": "UnreadableError: (its text cannot be read)",
    "exit": "SystemExit: 0",
    "interrupt": "KeyboardInterrupt",
    "generator_exit": "GeneratorExit",
    "base": "BaseException: odd",
}


def test_strange_errors_are_recorded_and_the_worker_lives_on(processes, connect, broker_url):
    """Cases 26 and 27: recorded as failed, cleaned and cut; children stay, other hooks run."""
    connection = connect()
    owed = [hook for job_type in STRANGE for hook in owe(connection, 3, job_type)]
    worker = processes.hook_worker("-c", "4", handlers=HANDLERS).ready()
    children = eventually(worker.children)
    assert doorbell(broker_url).publish([*owed, *owe(connection, 5)])
    eventually(lambda: hook_states(connection) == {"failed": 24, "completed": 5}, 60)
    errors = fetch(
        connection,
        "SELECT DISTINCT job_type, left(error, 60) AS error, length(error) AS length"
        " FROM reaper.terminal_hooks WHERE state = 'failed' ORDER BY job_type",
    )
    assert len(errors) == len(STRANGE)
    for row in errors:
        assert row["error"].startswith(STRANGE[row["job_type"]])
        assert row["length"] < 2_100
    assert len(effects(connection, "ok")) == 5
    assert set(worker.children()) == set(children)
    assert worker.is_running
    for secret in ("half", "xxx", "odd"):
        assert secret not in worker.log  # a handler's text may hold a payload


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def broken(:", "SyntaxError: invalid syntax"),
    ],
)
def test_worker_stops_at_start_when_a_handler_module_does_not_import(
    processes, tmp_path, text, reason
):
    """Case 28: with the module's name and the reason; status 1, no traceback."""
    (tmp_path / "broken_handlers.py").write_text(text)
    path = {"PYTHONPATH": f"{processes.environment()['PYTHONPATH']}:{tmp_path}"}
    worker = processes.hook_worker(handlers="broken_handlers", **path)
    assert worker.wait(60) == 1
    assert "handler module 'broken_handlers' (REAPER_HANDLERS) does not import: " in worker.log
    assert reason in worker.log
    assert "Traceback" not in worker.log


def test_worker_stops_at_start_when_two_handlers_claim_one_type(processes, tmp_path):
    (tmp_path / "twice.py").write_text(
        "from reaper import on_dead_letter\n"
        "@on_dead_letter('ok')\n"
        "def another(context, payload, dead_letter): ...\n"
    )
    path = {"PYTHONPATH": f"{processes.environment()['PYTHONPATH']}:{tmp_path}"}
    worker = processes.hook_worker(handlers=f"{HANDLERS},twice", **path)
    assert worker.wait(60) == 1
    assert "job type 'ok' has two handlers, tests.harness.handlers.ok (" in worker.log
    assert "twice.another (" in worker.log
