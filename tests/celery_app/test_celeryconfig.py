"""The celeryconfig.py of a deployment: read from where the command starts, merged, checked."""

import sys
from pathlib import Path

import pytest
from celery import Celery
from kombu import Queue

from reaper import celery, deployment
from reaper.config import Settings
from reaper.errors import ConfigError

OWN_QUEUES = ["reaper", "terminal-hooks"]


@pytest.fixture
def given(tmp_path: Path, monkeypatch):
    """Write a celeryconfig.py, and return what is read of it from its directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "celeryconfig", raising=False)

    def read(text: str) -> dict:
        (tmp_path / "celeryconfig.py").write_text(text, "utf-8")
        sys.modules.pop("celeryconfig", None)
        return deployment.load_celeryconfig()[0]

    yield read
    sys.modules.pop("celeryconfig", None)


def configured(given: dict) -> dict:
    return celery.configuration(Settings.load(), given)


def test_schedules_routes_options_and_queues_are_merged_not_replaced(given):
    """beat_schedule and task_routes are merged by key, queues are added."""
    config = configured(
        given(
            "from kombu import Queue\n"
            "beat_schedule = {'nightly': {'task': 'x.nightly', 'schedule': 5.0}}\n"
            "task_routes = {'x.*': {'queue': 'mine'}, '*': 'rest'}\n"
            "task_queues = [Queue('mine'), Queue('rest')]\n"
            "broker_transport_options = {'socket_timeout': 3}\n"
            "task_annotations = {'x.nightly': {'time_limit': 3}, '*': {'rate_limit': '9/s'}}\n"
            "timezone = 'Europe/Berlin'\n"
        )
    )
    assert set(config["beat_schedule"]) >= {"nightly", "reaper.reap", "reaper.redeliver"}
    assert config["task_routes"][0]["reaper.reap"] == {"queue": "reaper"}
    assert config["task_routes"][1]["x.*"] == {"queue": "mine"}
    assert [queue.name for queue in config["task_queues"]] == [*OWN_QUEUES, "mine", "rest"]
    assert config["broker_transport_options"]["socket_timeout"] == 3
    assert config["broker_transport_options"]["global_keyprefix"] == "reaper:"
    assert config["timezone"] == "Europe/Berlin"


def test_queues_may_be_a_dict_and_routes_a_function_or_a_list(given):
    config = configured(
        given(
            "task_queues = {'mine': {'routing_key': 'k'}}\n"
            "def route(name, *args, **kwargs):\n    return 'mine'\n"
            "task_routes = [route, {'x.y': 'mine'}]\n"
        )
    )
    mine = config["task_queues"][-1]
    assert isinstance(mine, Queue)
    assert (mine.name, mine.routing_key) == ("mine", "k")
    assert callable(config["task_routes"][1])
    assert config["task_routes"][2] == {"x.y": "mine"}


def test_own_tasks_keep_their_queue_beside_routes_for_everything(given):
    app = Celery("test", set_as_current=False)
    app.config_from_object(configured(given("task_routes = {'*': 'rest'}\n")))
    routed = app.amqp.router.route({}, "reaper.terminal_hook")
    assert routed["queue"].name == "terminal-hooks"
    assert app.amqp.router.route({}, "other")["queue"].name == "rest"


def test_modules_functions_and_classes_of_the_file_itself_are_left_alone(given):
    """What the file imports or defines for itself is no setting; a setting's value may be any."""
    found = given(
        "import os, datetime as dt\n"
        "from datetime import timedelta\n"
        "def helper(): return 3\n"
        "class local: pass\n"
        "_own = 5\n"
        "SOME_CONSTANT = 6\n"
        "def task_routes(name, *args, **kwargs): return None\n"
        "beat_max_loop_interval = helper()\n"
    )
    assert set(found) == {"task_routes", "beat_max_loop_interval"}


def test_every_unknown_or_old_name_is_told(given):
    """A misspelt setting would be ignored by Celery without a word."""
    with pytest.raises(ConfigError) as refused:
        given(
            "task_serialiser = 'json'\nreaper_interval_seconds = 3\nBROKER_URL = 'redis://'\n"
            "CELERY_ACCEPT_CONTENT = ['json']\nREAPER_INTERVAL_SECONDS = 4\n"
        )
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert "task_serialiser" in lines[0]
    assert "begin it with _" in lines[0]
    assert "an old name: write broker_url" in lines[1]
    assert "an old name: write accept_content" in lines[2]
    assert "write reaper_interval_seconds here" in lines[3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("import missing_module", "ModuleNotFoundError: No module named 'missing_module'"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
        ("raise ValueError('redis://u:hunter2@h\\nsecond line')", "ValueError: redis://u:***@h"),
    ],
)
def test_a_file_that_raises_is_told_in_one_line(given, text, said):
    with pytest.raises(ConfigError) as refused:
        given(text)
    assert said in str(refused.value)
    assert "does not import" in str(refused.value)
    assert "\n" not in str(refused.value)


CONTRADICTIONS = [
    ("accept_content = ['json', 'pickle']", "accept_content"),
    ("accept_content = ['application/x-python-serialize']", "accept_content"),
    ("accept_content = []", "accept_content"),
    ("accept_content = 'json'", "accept_content"),
    ("task_serializer = 'pickle'", "task_serializer='pickle'"),
    ("event_serializer = 'yaml'", "event_serializer='yaml'"),
    ("worker_pool = 'threads'", "worker_pool='threads'"),
    ("task_always_eager = True", "task_always_eager"),
    ("task_soft_time_limit = 5", "task_soft_time_limit=5"),
    ("task_default_rate_limit = '1/m'", "task_default_rate_limit"),
    ("broker_read_url = 'redis://other'", "broker_read_url"),
    ("task_routes = {'reaper.reap': 'mine'}", "sets queue='mine' for reaper.reap:"),
    (
        "task_routes = {'reaper.reap': {'queue': 'reaper', 'serializer': 'yaml'}}",
        "serializer='yaml'",
    ),
    ("task_routes = ({'reaper.*': {'queue': 'mine'}},)", "for reaper.reap, reaper.redeliver"),
    ("import re\ntask_routes = {re.compile('reap.*'): {'queue': 'mine'}}", "sets queue='mine'"),
    ("task_annotations = {'*': {'acks_late': False}}", "sets acks_late=False for reaper.reap"),
    ("task_annotations = {'reaper.terminal_hook': {'time_limit': 99}}", "sets time_limit=99"),
    ("task_annotations = [{'reaper.reap': {'serializer': 'yaml'}}]", "sets serializer='yaml'"),
    (
        (
            "class Notes:\n  def annotate_any(self): return {'soft_time_limit': 1}\n"
            "  def annotate(self, task): return None\ntask_annotations = (Notes(),)"
        ),
        "sets soft_time_limit=1",
    ),
    ("task_annotations = 'no.such:thing'", "task_annotations cannot be read"),
    (
        "beat_schedule = {'x': {'task': 'reaper.reap', 'schedule': 3, 'options': {'queue': 'y'}}}",
        "beat_schedule['x'] sets queue='y' for reaper.reap",
    ),
    (
        "beat_schedule = {'x': {'task': 'reaper.reap', 'schedule': 3, 'options': {'expires': 2}}}",
        "sets expires=2",
    ),
    ("beat_schedule = {'reaper.reap': {'schedule': 3}}", "is reaper's own entry"),
    ("beat_schedule = [1]", "beat_schedule is of type list"),
    ("from kombu import Queue\ntask_queues = [Queue('reaper')]", "task_queues defines 'reaper'"),
    ("task_queues = {'terminal-hooks': {}}", "task_queues defines 'terminal-hooks'"),
    ("task_queues = 'mine'", "task_queues is of type str"),
    ("broker_transport_options = 3", "broker_transport_options is of type int"),
]


@pytest.mark.parametrize(("text", "said"), CONTRADICTIONS)
def test_a_contradiction_to_what_the_own_tasks_need_is_told(given, text, said):
    """Queue, limits, acks and serializer of reaper's tasks are reaper's, and no other's."""
    with pytest.raises(ConfigError) as refused:
        configured(given(text))
    assert said in str(refused.value)
    assert str(refused.value).startswith("celeryconfig.py: ")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "accept_content = ('json',)",
        "task_serializer = 'json'",
        "worker_pool = 'prefork'",
        "task_time_limit = 5",
        "task_soft_time_limit = 600",
        "task_acks_late = True",
        "task_routes = {'reaper.reap': {'queue': 'reaper'}}",
        "task_annotations = {'reaper.terminal_hook': {'rate_limit': '100/s'}}",
        "beat_schedule = {'extra': {'task': 'reaper.reap', 'schedule': 3600.0}}",
        "beat_schedule = None",
        "task_routes = None",
    ],
)
def test_what_contradicts_nothing_is_taken(given, text):
    configured(given(text))


def test_faults_of_settings_and_of_the_file_are_told_together(processes):
    """Everything that is wrong at once, from a real command."""
    (processes.directory / "celeryconfig.py").write_text(
        "accept_content = ['pickle']\nreaper_retry_delay_ms = 0\n", "utf-8"
    )
    command = processes.celery("beat", interval_seconds="fast")
    assert command.wait() == 2
    lines = command.log.splitlines()
    assert len(lines) == 3, command.log
    assert all(line.startswith("reaper: ") for line in lines)


def test_own_settings_may_stand_in_the_file(given):
    found = given(
        "reaper_interval_seconds = 3\nreaper_handlers = ['a.b']\n"
        "broker_url = ['redis://h1/0', 'redis://h2/0']\nimports = ['c']\n"
    )
    settings = deployment.load_settings(found)
    assert settings.interval_seconds == 3
    assert settings.handlers == ("a.b",)
    assert settings.broker_url.get_secret_value() == "redis://h1/0;redis://h2/0"
    assert deployment.hook_modules(found) == ("c",)


def test_a_deleted_directory_is_no_reason_to_fail(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    sys.modules.pop("celeryconfig", None)
    deployment.load_celeryconfig()
    sys.modules.pop("celeryconfig", None)
