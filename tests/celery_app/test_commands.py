"""`celery -A reaper ...` from any directory: every command a user has, on real servers."""

import json
import re
from pathlib import Path

import pytest

from tests.harness.processes import ROOT
from tests.harness.rows import hook_states, insert_leased
from tests.harness.waiting import eventually


def test_beat_and_flower_start_without_a_database_url(processes):
    """Beat and Flower never talk to PostgreSQL."""
    beat = processes.beat("-l", "debug", DATABASE_URL=None, REAPER_DATABASE_URL=None)
    flower = processes.celery("flower", "--address=127.0.0.1", "--port=0", REAPER_DATABASE_URL=None)
    beat.wait_for("reaper.reap sent", 40)
    flower.wait_for("Visit me at", 60)
    assert beat.is_running
    assert flower.is_running


def test_inspect_purge_and_report_work_from_any_directory(processes, broker_url):
    """The ordinary commands of Celery find the app wherever they are started."""
    worker = processes.reap_worker().ready()
    ping = processes.celery("inspect", "ping", "-t", "5", "-d", "celery@reap-0")
    assert ping.wait(60) == 0, ping.log
    assert "pong" in ping.log
    conf = processes.celery("inspect", "conf", "--json", "-t", "5", "-d", "celery@reap-0")
    assert conf.wait(60) == 0
    config = next(iter(json.loads(conf.log).values()))
    assert config["accept_content"] == ["json"]
    assert config["task_acks_on_timeout"] is True
    worker.terminate()
    worker.wait()

    purge = processes.celery("purge", "-f")
    assert purge.wait(60) == 0
    assert re.search(r"purged|[Nn]o messages", purge.log, re.IGNORECASE), purge.log

    report = processes.celery("report")
    assert report.wait(60) == 0
    assert "worker_prefetch_multiplier: 1" in report.log


def test_the_app_is_found_in_a_directory_of_the_user_with_handlers_of_the_user(
    processes, connect, tmp_path: Path
):
    """A celeryconfig.py and handlers beside it, in the directory the commands are started in."""
    connection = connect()
    (processes.directory / "celeryconfig.py").write_text(
        "reaper_interval_seconds = 0.5\nimports = ('my_handlers',)\n", "utf-8"
    )
    (processes.directory / "my_handlers.py").write_text(
        "from reaper import on_dead_letter\n\n"
        "@on_dead_letter('mine')\n"
        "def mine(context, payload, dead_letter):\n    pass\n",
        "utf-8",
    )
    insert_leased(connection, job_type="mine")
    processes.beat()
    processes.reap_worker()
    hooks = processes.hook_worker(handlers="").ready()

    eventually(lambda: hook_states(connection)["completed"] == 1, 40)
    assert f"celeryconfig_found path={processes.directory}/celeryconfig.py" in hooks.log
    assert "handlers=mine" in hooks.log


def test_importing_the_app_connects_to_nothing_and_imports_no_handler(processes):
    """Importing `reaper` and its app has no effect beyond reading settings."""
    code = (
        "import sys, socket\n"
        "def refuse(*a, **k): raise SystemExit('connected')\n"
        "socket.socket.connect = refuse\n"
        "import reaper, reaper.celery, reaper.tasks\n"
        "assert 'tests.harness.handlers' not in sys.modules\n"
        "print('fine')\n"
    )
    imported = processes.python("-c", code, handlers="tests.harness.handlers")
    assert imported.wait() == 0, imported.log
    assert "fine" in imported.log


def test_importers_get_the_error_where_commands_get_a_line(processes):
    """A bad setting is an exception for who imports the app, and no traceback under a command."""
    imported = processes.python("-c", "import reaper.celery", interval_seconds="fast")
    assert imported.wait() == 1
    assert "reaper.errors.ConfigError: REAPER_INTERVAL_SECONDS='fast'" in imported.log
    command = processes.celery("worker", interval_seconds="fast")
    assert command.wait() == 2
    assert "Traceback" not in command.log


@pytest.mark.parametrize("name", ["celeryconfig.py"])
def test_the_repositorys_own_celeryconfig_is_taken_without_a_fault(processes, name):
    (processes.directory / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    report = processes.celery("report")
    assert report.wait(60) == 0, report.log
