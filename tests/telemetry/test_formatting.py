"""Single lines: one per event whatever the values hold, and no password in any."""

import json
import logging

import pytest

from reaper import logs, telemetry
from reaper.jobs import DeferredRow


@pytest.fixture
def lines(capsys):
    """Give a function that returns what was logged, formatted."""
    handler = logging.StreamHandler()
    telemetry.log.addHandler(handler)
    telemetry.log.setLevel(logging.DEBUG)
    handler.setStream(sink := _Sink())

    def read(log_format: str, act) -> list[str]:
        handler.setFormatter(logs.formatter(log_format))
        act()
        return sink.lines()

    yield read
    telemetry.log.removeHandler(handler)
    telemetry.log.setLevel(logging.NOTSET)


class _Sink:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def lines(self) -> list[str]:
        return self.text.splitlines()


EVIL = 'a\nb level=ERROR \x1b[31m \u2028 "quoted" x'


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_event_stays_one_line_when_a_value_holds_line_breaks(lines, log_format):
    """A job type or constraint cannot forge a log line."""
    row = DeferredRow(job_id="j", run_number=1, attempt=2, sqlstate="23514", constraint=EVIL)

    found = lines(log_format, lambda: telemetry.row_deferred(row))

    assert len(found) == 1
    assert "\x1b" not in found[0]
    if log_format == "json":
        assert json.loads(found[0])["constraint"] == EVIL


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "secret",
    [
        "redis://:hunter2@host/0",
        "postgresql://u:hunter2@h1,h2/db",
        "host=h password=hunter2 dbname=x",
        "host=h password='hunter2 \\' more' dbname=x",
        "{'password': 'hunter2'}",
        "amqp://u:p%40hunter2@h//",
        "sentinel://:hunter2@a:1;sentinel://:hunter2@b:2",
    ],
)
def test_a_password_is_masked_in_messages_and_tracebacks(lines, log_format, secret):
    """Whatever a library logs, no password of a URL or DSN reaches the log."""

    def act() -> None:
        telemetry.log.warning("cannot use %s", secret)
        try:
            raise ValueError(secret)  # noqa: TRY301 -- to be logged
        except ValueError:
            telemetry.log.exception("it broke")

    text = "\n".join(lines(log_format, act))

    assert "cannot use" in text
    assert "ValueError" in text
    assert "hunter2" not in text


def test_celery_lines_about_other_tasks_are_kept():
    """Only what doubles reaper's own events is left out."""
    noise = logs.OwnTaskNoise({"reaper.reap", "reaper.hook"}, "reaper.hook")

    def record(*args, level=logging.INFO) -> logging.LogRecord:
        return logging.LogRecord("celery.worker.request", level, "", 1, "%s %s", args, None)

    logging.getLogger().setLevel(logging.INFO)
    assert not noise.filter(record("tick", "reaper.reap"))
    assert noise.filter(record("nightly", "myproject.nightly"))
    assert not noise.filter(record({"name": "reaper.reap", "id": "1"}))
    assert noise.filter(record({"name": "myproject.nightly", "id": "1"}))
    assert noise.filter(record(45.0, "reaper.reap", level=logging.ERROR))
    assert not noise.filter(record(12.0, "reaper.hook", level=logging.ERROR))
