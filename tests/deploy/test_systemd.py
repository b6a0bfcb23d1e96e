"""The systemd units, read by systemd itself and compared with the settings' defaults."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reaper.config import Settings
from tests.harness.processes import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
CELERY = "/opt/reaper/venv/bin/celery"
GRACE_SECONDS = 5
"""What docs/deployment.md adds to the drain window."""


def _value(unit: str, key: str) -> str:
    found = re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)
    assert len(found) == 1, (key, found)
    return found[0]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_unit_is_accepted_by_systemd(unit: Path, tmp_path: Path) -> None:
    """systemd finds nothing to complain about in the units."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # Only the command's path is a stand-in: systemd checks that it can be executed.
    text = unit.read_text().replace(CELERY, sys.executable)
    assert sys.executable in text
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run(
        [analyze, "verify", copy], capture_output=True, text=True, timeout=60, check=False
    )
    # It also reads every unit of this machine, whose faults are not ours.
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == []


def test_units_start_the_three_processes_and_signal_the_parent_alone() -> None:
    """KillMode=mixed: with the default, running hooks would get the TERM as well."""
    commands = {unit.stem: _value(unit.read_text(), "ExecStart") for unit in UNITS}
    assert commands == {
        "reaper-beat": f"{CELERY} -A reaper beat -l INFO",
        "reaper-hooks": f"{CELERY} -A reaper worker -Q terminal-hooks -n hooks@%%h -l INFO",
        "reaper-reap": f"{CELERY} -A reaper worker -Q reaper -c 1 -n reap@%%h -l INFO",
    }
    assert {_value(unit.read_text(), "KillMode") for unit in UNITS} == {"mixed"}


def test_stop_times_leave_room_for_the_drain_window() -> None:
    """Hooks that run when the worker is stopped get their whole time: window + 5 s."""
    needed = Settings.load().drain_window_seconds + GRACE_SECONDS
    unit = (ROOT / "deploy" / "systemd" / "reaper-hooks.service").read_text()
    compose = (ROOT / "docker-compose.yml").read_text()
    found = re.search(r"stop_grace_period: \$\{HOOKS_STOP_GRACE:-(\d+)s\}", compose)
    assert found
    assert needed <= int(_value(unit, "TimeoutStopSec")) < needed + 1
    assert needed <= int(found[1]) < needed + 1


def test_compose_passes_on_every_setting_and_no_other() -> None:
    """A misspelt variable in docker-compose.yml would be ignored in silence."""
    compose = (ROOT / "docker-compose.yml").read_text()
    named = set(re.findall(r"^\s+REAPER_(\w+):", compose, re.MULTILINE))
    known = {name.upper() for name in Settings.model_fields}
    assert named == known
