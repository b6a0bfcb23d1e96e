"""The bare app of the benchmarks has reaper's own settings: else its figures compare nothing."""

import pytest

from reaper.celery import HOOK_TASK, app
from reaper.tasks import terminal_hook


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setenv("REAPER_BROKER_URL", "redis://127.0.0.1:1")
    from benchmarks import bare  # noqa: PLC0415 -- it reads the environment

    return bare


def test_bare_app_has_the_worker_settings_of_the_hooks(bare):
    assert {name: app.conf[name] for name in bare.SETTINGS} == bare.SETTINGS


@pytest.mark.parametrize("name", ["noop", "tenth"])
def test_bare_tasks_have_the_limits_and_the_acks_of_the_hook_task(bare, name):
    assert terminal_hook.name == HOOK_TASK
    task = getattr(bare, name)
    for setting in bare.TASK:
        assert getattr(task, setting) == getattr(terminal_hook, setting), setting
