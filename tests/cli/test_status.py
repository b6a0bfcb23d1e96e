"""`reaper status`, `prune` and the frame of all commands."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.harness.rows import insert_hook, insert_leased
from tests.harness.waiting import eventually


def test_status_shows_everything_on_one_screen(reaper, processes, connect, kill):
    """Leases, the last tick, deaths by type, hooks, queues; who is alive and who is not."""
    kill(2, job_type="mail")
    insert_leased(connect(), 3, job_type="fax", expired_seconds=-60)
    insert_leased(connect(), 1, job_type="fax", expired_seconds=90)
    insert_hook(connect(), job_type="mail", state="timed_out")

    shown = reaper("status")
    document = json.loads(reaper("status", "--json").stdout)

    assert shown.returncode == 0
    assert "3 live, 1 expired, the oldest for 1m3" in shown.stdout
    assert "2 dead-lettered" in shown.stdout
    assert "beat     none alive" in shown.stdout
    assert len(shown.stdout.splitlines()) < 25
    assert document["leases"]["live"] == 3
    assert document["tick"]["dead_lettered"] == 2
    assert document["dead_letters"] == [{"job_type": "mail", "last_hour": 2, "last_day": 2}]
    [mail] = document["hooks"]
    assert (mail["pending"], mail["timed_out"], mail["throttled"]) == (2, 1, False)
    assert document["queues"] == {"reaper": 0, "terminal-hooks": 0}
    assert (document["workers"], document["beats"]) == ([], [])

    processes.beat(interval_seconds=60).wait_for("beat: Starting")
    processes.reap_worker().ready()
    seen = eventually(
        lambda: (d := json.loads(reaper("status", "--json").stdout))["beats"] and d, 60
    )
    assert [w["queues"] for w in seen["workers"]] == [["reaper"]]
    assert seen["beats"][0].startswith("celerybeat@")


def test_status_without_a_broker_shows_the_database_and_says_so(reaper, kill):
    kill()

    done = reaper("status", broker_url="redis://:pw@127.0.0.1:9/0")

    assert done.returncode == 2
    assert "1 dead-lettered" in done.stdout
    assert "@127.0.0.1:9/0 cannot be reached" in done.stdout
    assert ":pw@" not in done.stdout + done.stderr
    assert reaper("status", database_url="postgresql://127.0.0.1:9/x").returncode == 2


@pytest.mark.parametrize("on_terminal", [True, False])
def test_status_watch_shows_it_again_until_interrupted(processes, kill, tmp_path, on_terminal):
    kill()
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    watching = subprocess.Popen(
        [sys.executable, "-m", "reaper", "status", "--watch", "0.2"],
        env=processes.environment(COLUMNS="120", LINES="50", TERM="xterm"),
        cwd=tmp_path,
        stdout=theirs,
        stderr=subprocess.STDOUT,
    )
    os.close(theirs)
    seen = b""
    try:
        while seen.count(b"1 dead-lettered") < 3:
            seen += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.wait()
        os.close(ours)
    assert (b"\x1b[" in seen) is on_terminal


def test_prune_counts_then_deletes(invoke, connect, rows):
    for state in ("completed", "pending"):
        insert_hook(connect(), state=state)
    rows(
        "UPDATE reaper.terminal_hooks SET started_at = now() - interval '8 days',"
        " finished_at = now() - interval '8 days' WHERE state = 'completed' RETURNING 1"
    )

    dry = invoke("prune", "--dry-run", retention_days=7)
    done = invoke("prune", "--json", retention_days=7)

    assert "1 finished rows are older than 7 days; nothing was changed" in dry.stdout
    assert json.loads(done.stdout) == {"prunable": 1, "pruned": 1, "dry_run": False}
    assert [row["state"] for row in rows("SELECT state FROM reaper.terminal_hooks")] == ["pending"]


def test_help_lists_every_command_and_imports_none(processes):
    """The help costs no import of what a command needs."""
    code = (
        "import sys; from click.testing import CliRunner; from reaper.cli import main;"
        "print(CliRunner().invoke(main, ['--help']).output);"
        "print([m for m in sys.modules if m.startswith('reaper.cli.') or m == 'celery'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=processes.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("dead-letters", "doctor", "exporter", "hooks", "prune", "status"):
        assert f"  {name} " in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_commands_load_nothing_they_do_not_need(processes):
    """First output within a second: what is slow to import is left out."""
    code = (
        "import sys;"
        "from reaper.cli import dead_letters, doctor, exporter, hooks, prune, status;"
        "print([m for m in ('rich', 'prometheus_client', 'flower', 'celery.worker.control',"
        " 'celery.beat') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=processes.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


_MANY = """
WITH queued AS (
    INSERT INTO job_queue (job_type, payload, status, attempt, max_attempts, finished_at)
    SELECT 'demo', jsonb_build_object('n', i), 'DEAD_LETTERED', 1, 1, now() - i * interval '2 s'
    FROM generate_series(1, 100000) AS i
    RETURNING id, payload, finished_at
),
dead AS (
    INSERT INTO job_dead_letters (job_id, job_type, attempt, payload_snapshot, failed_at)
    SELECT id, 'demo', 1, payload, finished_at FROM queued
)
INSERT INTO reaper.terminal_hooks (job_id, run_number, attempt, job_type, payload, reason,
    failure_kind, state, due_at, started_at, finished_at, created_at)
SELECT id, 1, 1, 'demo', payload, 'LEASE_EXPIRED', 'LEASE_EXPIRED', 'failed', finished_at,
    finished_at, finished_at, finished_at
FROM queued RETURNING 1
"""


@pytest.mark.slow
def test_each_command_answers_quickly_beside_100000_dead_letters(processes, rows):
    """Under a second to the first output on a machine of its own.

    Here by the processor time it took, half as much again for a busy machine; the wall clock only
    tells that no statement read the whole history for seconds.
    """
    rows("INSERT INTO job_definitions VALUES ('demo') RETURNING 1")
    rows(_MANY)
    for args in (
        ("status",),
        ("doctor",),
        ("dead-letters", "list"),
        ("dead-letters", "requeue", "--all", "--dry-run"),
        ("hooks", "list", "--state", "failed"),
        ("hooks", "retry", "--all", "--dry-run"),
        ("prune", "--dry-run"),
    ):
        began = time.monotonic()
        running = processes.reaper(*args)
        eventually(lambda p=running: p.log, 60, 0.01)
        used = sum(psutil.Process(running.pid).cpu_times()[:2])
        assert used < 1.5, args
        assert time.monotonic() - began < 15, args
        running.wait(60)
