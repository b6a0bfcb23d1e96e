import json
import signal

import pytest

from tests.demo.running import start
from tests.harness.waiting import eventually

SUMMARY = {
    "ok": True,
    "reaped": 9,
    "retried": 4,
    "dead_lettered": 5,
    "hooks": {"completed": 3, "failed": 1, "timed_out": 1, "pending": 0, "running": 0},
}

SERVERS_AND_WORKERS = 12
"""Valkey, the postmaster and some of its processes, beat, both workers, worker-1."""

CONFIG_LYING_AROUND = 'broker_url = "redis://127.0.0.1:1/0"\nno_such_setting = 1\n'


def test_demo_finds_every_planned_outcome_twice_at_once_whatever_settings_lie_around(
    processes, temporary, connect
):
    """README: the demo touches none of your settings, databases and files."""
    directory = temporary / "theirs"
    directory.mkdir()
    (directory / "celeryconfig.py").write_text(CONFIG_LYING_AROUND)
    directory.chmod(0o555)
    env = {
        "interval_seconds": "fast",
        "handlers": "no_such_module",
        "CELERY_CONFIG_MODULE": "no_such_module",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "PGSERVICE": "no_such_service",
        "TMPDIR": temporary,
    }
    told = start(processes, directory, "demo", **env)
    counted = start(processes, directory, "demo", "--json", **env)

    for command in (told, counted):
        command.wait_for_family(SERVERS_AND_WORKERS)

    assert counted.ended_with(0)
    assert told.ended_with(0)

    summary = json.loads(counted.stdout)
    assert counted.stdout.count("\n") == 1
    assert summary.pop("seconds") < 60
    assert summary == SUMMARY
    assert told.stdout.count("as planned") == 6
    assert "hook failed: the handler of notify-partner raised ConnectionError" in told.stdout
    assert told.stderr == ""
    assert sorted(path.name for path in directory.iterdir()) == ["celeryconfig.py"]
    assert list(temporary.iterdir()) == [directory]
    with connect().cursor() as cursor:
        cursor.execute("SELECT count(*) FROM job_queue")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_demo_leaves_nothing_behind_when_a_signal_ends_it(processes, temporary, name):
    """README: nothing is left running, whatever ends the demo."""
    demo = start(processes, temporary, "demo", "--json", TMPDIR=temporary)
    demo.wait_for_family(SERVERS_AND_WORKERS)

    demo.process.signal(signal.Signals[name])

    assert demo.ended_with(128 + signal.Signals[name])
    assert f"ended by {name}; nothing is left running" in demo.stderr
    assert demo.stdout == ""
    assert list(temporary.iterdir()) == []


def test_demo_leaves_nothing_behind_when_its_servers_are_still_starting(processes, temporary):
    demo = start(processes, temporary, "demo", "--json", TMPDIR=temporary)
    demo.wait_for_family(1)

    demo.process.signal(signal.SIGTERM)
    demo.process.signal(signal.SIGTERM)

    assert demo.ended_with(128 + signal.SIGTERM)
    assert list(temporary.iterdir()) == []


def test_demo_leaves_no_process_behind_when_it_is_killed(processes, temporary):
    """The kernel ends the children of a demo that could not do it itself (Linux)."""
    demo = start(processes, temporary, "demo", "--json", TMPDIR=temporary)
    demo.wait_for_family(SERVERS_AND_WORKERS)

    demo.process.signal(signal.SIGKILL)
    demo.wait()

    eventually(lambda: demo.left() == [])


def test_demo_names_the_process_and_ends_the_others_when_one_dies(processes, temporary):
    demo = start(processes, temporary, "demo", "--json", TMPDIR=temporary)
    demo.wait_for_family(SERVERS_AND_WORKERS)
    eventually(lambda: demo.named("beat"), 30)[0].kill()

    assert demo.ended_with(2)
    assert "the demo's process beat ended with signal SIGKILL" in demo.stderr
    assert demo.stdout == ""
