"""What beat, both workers and the commands write, read from the real processes' output."""

import json
import time

import pytest

from tests.harness.rows import hook_states, insert_leased
from tests.harness.waiting import eventually

FAST = {"interval_seconds": 0.3, "hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 0.5}

NOISE = ("received", "succeeded", "raised", "Sending due task", "time limit", "Traceback")
"""What Celery says of a task beside reaper's own event."""


def events_of(log: str) -> dict[str, list[dict]]:
    """The JSON lines of a log by event."""
    found: dict[str, list[dict]] = {}
    for line in log.splitlines():
        if line.startswith("{"):
            fields = json.loads(line)
            found.setdefault(fields.get("event", ""), []).append(fields)
    return found


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_death_is_told_once_by_each_process_it_concerns(processes, connect, log_format):
    """One structured line per event with the job's keys; Celery's own lines do not double it."""
    connection = connect()
    beat = processes.beat(log_format=log_format, **FAST)
    reap = processes.reap_worker(log_format=log_format, **FAST).ready()
    hooks = processes.hook_worker(log_format=log_format, **FAST).ready()
    job_ids = {
        kind: insert_leased(connection, job_type=kind)[0]
        for kind in ("ok", "raises", "sleeps", "blocks", "nobody")
    }
    eventually(
        lambda: (
            hook_states(connection).total() == 5
            and not {"pending", "running"} & set(hook_states(connection))
        ),
        60,
    )
    eventually(lambda: hooks.log.count("hook_timed_out") >= 2)

    for process in (beat, reap, hooks):
        told = [line for line in process.log.splitlines() if any(word in line for word in NOISE)]
        assert told == []
    for event, kind in (
        ("hook_completed", "ok"),
        ("hook_failed", "raises"),
        ("hook_timed_out", "sleeps"),
        ("hook_timed_out", "blocks"),
    ):
        lines = [line for line in hooks.log.splitlines() if event in line and job_ids[kind] in line]
        assert len(lines) == 1, (event, kind, hooks.log)
        if log_format == "json":
            fields = json.loads(lines[0])
            assert fields["job_type"] == kind
            assert (fields["run_number"], fields["attempt"]) == (1, 1)
            assert fields["worker"].startswith("celery@hooks-")
        else:
            assert f"job_type={kind} run_number=1 attempt=1" in lines[0]
            assert "worker=celery@hooks-" in lines[0]
    assert hooks.log.count("hook_unhandled") == 1
    assert "as planned" not in hooks.log  # a handler's text may hold a payload
    ticks = [line for line in reap.log.splitlines() if "tick_finished" in line]
    assert 1 <= len(ticks) <= 5


def test_every_line_is_one_json_object_when_the_format_is_json(processes, connect):
    """REAPER_LOG_FORMAT=json: no banner, no coloured line, from the start to the ready line."""
    started = [
        processes.beat(log_format="json", C_FORCE_ROOT=1, PYTHONWARNINGS="ignore", **FAST),
        processes.reap_worker(log_format="json", C_FORCE_ROOT=1, PYTHONWARNINGS="ignore", **FAST),
        processes.hook_worker(log_format="json", C_FORCE_ROOT=1, PYTHONWARNINGS="ignore", **FAST),
    ]
    started[1].ready()
    started[2].ready()
    insert_leased(connect(), job_type="ok")
    started[2].wait_for("hook_completed")

    for process in started:
        lines = process.log.splitlines()
        assert lines
        for line in lines:
            fields = json.loads(line)
            assert {"time", "level", "logger"} <= set(fields)
            assert ("event" in fields) != ("message" in fields)


def test_an_idle_system_logs_nothing_at_info_level(processes, connect):
    """No line per tick: twenty idle ticks and redeliveries add nothing to any log."""
    connection = connect()
    started = [
        processes.beat(interval_seconds=0.1),
        processes.reap_worker(interval_seconds=0.1).ready(),
        processes.hook_worker().ready(),
    ]
    ticks = lambda: _ticks(connection)  # noqa: E731
    first = eventually(ticks)
    time.sleep(1.5)  # gossip between the workers ends; nothing to poll for
    before = [process.log for process in started]
    eventually(lambda: ticks() >= first + 20, 60)

    assert [process.log for process in started] == before


def test_a_tick_that_fails_is_told_once_in_one_line(processes, connect):
    """`reap_failed` with batch size and delay; the traceback and Celery's own line are left out."""
    connection = connect()
    reap = processes.reap_worker(interval_seconds=0.5).ready()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE reaper.ticks RENAME TO gone")
    processes.beat(interval_seconds=0.5)

    line = reap.wait_for("reap_failed").log.partition("reap_failed")[2].splitlines()[0]
    assert "batch_size=500 retry_delay_ms=30000" in line
    assert "42P01" in line
    assert "Traceback" not in reap.log
    assert "raised expected" not in reap.log


def test_a_command_logs_in_the_format_that_is_set(processes, connect):
    """REAPER_LOG_FORMAT holds for `reaper ...` too: a poison row set aside is one JSON line."""
    connection = connect()
    insert_leased(connection, job_type="ok")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'secret-of-the-row'; END $$;"
            "CREATE TRIGGER refuse BEFORE UPDATE ON job_queue"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    tick = processes.reaper("reap", log_format="json")
    tick.wait()

    deferred = events_of(tick.log)["row_deferred"][0]
    assert deferred["sqlstate"] == "P0001"
    assert (deferred["job_type"], deferred["run_number"], deferred["attempt"]) == ("ok", 1, 1)
    assert deferred["job_id"]
    assert "secret-of-the-row" not in tick.log


def _ticks(connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ticks FROM reaper.ticks")
        return cursor.fetchone()[0]
