"""Where a setting comes from, and what counts as set."""

import pytest

from reaper.config import Settings
from reaper.environment import variables_of
from reaper.errors import ConfigError

ALIASES = {
    "interval_seconds": ("REAPER_INTERVAL_SECONDS", "JOBS_REAPER_INTERVAL_SECONDS"),
    "claim_batch_size": ("REAPER_CLAIM_BATCH_SIZE", "JOBS_CLAIM_BATCH_SIZE"),
    "retry_delay_ms": ("REAPER_RETRY_DELAY_MS", "JOBS_REAPER_RETRY_DELAY_MS"),
}


@pytest.fixture(autouse=True)
def _no_other_settings(monkeypatch):
    """Start from an environment without any setting."""
    for field in Settings.model_fields:
        for variable in variables_of(Settings, field):
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("field", ALIASES)
def test_settings_take_the_first_source_that_says_something(monkeypatch, field):
    """REAPER_* > JOBS_* alias > celeryconfig's reaper_* > default."""
    own, alias = ALIASES[field]
    default = Settings.model_fields[field].default
    assert getattr(Settings.load(), field) == default
    assert getattr(Settings.load({field: 41}), field) == 41
    monkeypatch.setenv(alias, "42")
    assert getattr(Settings.load({field: 41}), field) == 42
    monkeypatch.setenv(own, "43")
    assert getattr(Settings.load({field: 41}), field) == 43


@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
def test_settings_pass_over_a_source_that_is_blank(monkeypatch, blank):
    """An empty variable, as compose files leave it, counts as not set."""
    monkeypatch.setenv("REAPER_INTERVAL_SECONDS", blank)
    assert Settings.load().interval_seconds == 15
    assert Settings.load({"interval_seconds": blank}).interval_seconds == 15
    assert Settings.load({"interval_seconds": None}).interval_seconds == 15
    assert Settings.load({"interval_seconds": 41}).interval_seconds == 41
    monkeypatch.setenv("JOBS_REAPER_INTERVAL_SECONDS", "42")
    assert Settings.load({"interval_seconds": 41}).interval_seconds == 42


def test_settings_ignore_a_bad_value_that_a_better_source_overrules(monkeypatch):
    monkeypatch.setenv("JOBS_CLAIM_BATCH_SIZE", "many")
    monkeypatch.setenv("REAPER_CLAIM_BATCH_SIZE", "7")
    assert Settings.load({"claim_batch_size": "lots"}).claim_batch_size == 7


def test_settings_read_only_the_exact_names_of_variables(monkeypatch):
    monkeypatch.setenv("reaper_interval_seconds", "3")
    monkeypatch.setenv("REAPER_interval_seconds", "3")
    assert Settings.load().interval_seconds == 15


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 5 ", 5), ("1_000", 1000), ("+5", 5), ("5.0", 5), ("007", 7), ("1e3", None), ("0x10", None)],
)
def test_whole_numbers_are_read_as_python_reads_them(monkeypatch, text, number):
    monkeypatch.setenv("REAPER_CLAIM_BATCH_SIZE", text)
    if number is None:
        with pytest.raises(ConfigError, match="a whole number from 1 to 10000"):
            Settings.load()
    else:
        assert Settings.load().claim_batch_size == number


@pytest.mark.parametrize(("text", "seconds"), [("1_000", 1000), ("1e3", 1000), ("0.1", 0.1)])
def test_seconds_may_be_fractions_and_powers(monkeypatch, text, seconds):
    monkeypatch.setenv("REAPER_INTERVAL_SECONDS", text)
    assert Settings.load().interval_seconds == seconds


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "Infinity", "1e400", "0.09", "86401", "5s"])
def test_seconds_refuse_what_is_no_span_of_time(monkeypatch, text):
    monkeypatch.setenv("REAPER_INTERVAL_SECONDS", text)
    with pytest.raises(ConfigError) as refused:
        Settings.load()
    assert str(refused.value) == (
        f"REAPER_INTERVAL_SECONDS={text!r} is not allowed: it takes seconds between two reaps, "
        "from 0.1 to 86400"
    )


def test_settings_report_every_fault_at_once(monkeypatch):
    """All faults of all sources in one go, a line each."""
    monkeypatch.setenv("REAPER_INTERVAL_SECONDS", "fast")
    monkeypatch.setenv("JOBS_CLAIM_BATCH_SIZE", "0")
    monkeypatch.setenv("REAPER_HOOK_CONCURRENCY", "9")
    monkeypatch.setenv("REAPER_LOG_FORMAT", "xml")
    monkeypatch.setenv("REAPER_HANDLERS", "my-module")
    monkeypatch.setenv("REAPER_DATABASE_URL", "mysql://u:hunter2@h/x")
    with pytest.raises(ConfigError) as refused:
        Settings.load({"retry_delay_ms": -1, "speed": 1, "hook_max_crashes": True})
    lines = str(refused.value).splitlines()
    assert len(lines) == 9
    assert "hunter2" not in str(refused.value)
    for name in (
        "REAPER_INTERVAL_SECONDS='fast'",
        "JOBS_CLAIM_BATCH_SIZE='0'",
        "REAPER_HOOK_CONCURRENCY='9'",
        "REAPER_LOG_FORMAT='xml'",
        "REAPER_HANDLERS='my-module'",
        "REAPER_DATABASE_URL='mysql://u:***@h/x'",
        "reaper_retry_delay_ms in celeryconfig.py=-1",
        "reaper_speed in celeryconfig.py is no setting",
        "reaper_hook_max_crashes in celeryconfig.py=True",
    ):
        assert sum(line.startswith(name) for line in lines) == 1, (name, lines)


def test_handlers_are_module_names_divided_by_commas_or_blanks(monkeypatch):
    monkeypatch.setenv("REAPER_HANDLERS", " a.b, c ,d\n")
    assert Settings.load().handlers == ("a.b", "c", "d")
    monkeypatch.delenv("REAPER_HANDLERS")
    assert Settings.load({"handlers": ["a.b"]}).handlers == ("a.b",)


@pytest.mark.parametrize("variable", ["CELERY_BROKER_URL", "BROKER_URL"])
def test_the_broker_of_celery_itself_must_be_the_same(monkeypatch, variable):
    """Celery lets these overrule its configuration: two different brokers are refused."""
    monkeypatch.setenv(variable, "redis://:hunter2@other/0")
    assert Settings.load().broker_url.get_secret_value() == "redis://:hunter2@other/0"
    monkeypatch.setenv("REAPER_BROKER_URL", "redis://:hunter3@mine/0")
    with pytest.raises(ConfigError) as refused:
        Settings.load()
    assert str(refused.value) == (
        f"{variable}='redis://:***@other/0' contradicts REAPER_BROKER_URL='redis://:***@mine/0': "
        "unset one of them"
    )
    monkeypatch.setenv(variable, "redis://:hunter3@mine/0")
    Settings.load()


def test_a_broker_for_one_direction_only_is_refused(monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_READ_URL", "redis://other/0")
    with pytest.raises(ConfigError, match="reaper has one broker"):
        Settings.load()


def test_settings_cannot_be_changed_and_do_not_show_secrets():
    settings = Settings.load({"database_url": "postgresql://u:hunter2@h/x"})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.model_dump())
    with pytest.raises(ValueError, match="frozen"):
        settings.interval_seconds = 3


def test_derived_times_follow_from_their_settings():
    settings = Settings.load({"hook_timeout_seconds": 10, "hook_kill_grace_seconds": 2})
    assert settings.hook_hard_limit_seconds == 12
    assert settings.hook_lease_seconds == pytest.approx(13.8)
    assert settings.drain_window_seconds == pytest.approx(13.8)
    assert Settings.load({"drain_seconds": 0}).drain_window_seconds == 0
    assert Settings.load({"interval_seconds": 600}).tick_budget_seconds == 20
    assert Settings.load({"interval_seconds": 600}).redelivery_seconds == 5
    assert Settings.load({"interval_seconds": 0.1}).redelivery_seconds == pytest.approx(0.1)
