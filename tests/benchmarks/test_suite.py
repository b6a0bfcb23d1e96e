"""The benchmarks run, and write their results in the agreed form. What they measure is theirs."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

QUICK = 120
"""Seconds: a few, unless the machine is busy."""


def measure(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, args)],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=QUICK,
        check=False,
    )


def test_benchmarks_write_results_in_their_form_when_run_quickly(dsn, broker_url, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{"id": "P2", "value": 7}, {"id": "P9", "value": 7}]))
    servers = {"REAPER_BENCH_DATABASE_URL": dsn, "REAPER_BENCH_BROKER_URL": broker_url}
    done = measure("--only", "p2,P3", "--quick", "--results", path, **servers)
    assert done.returncode in {0, 1}, done.stderr  # 1: a target missed, which means nothing here
    entries = json.loads(path.read_text())
    *measured, kept = entries
    assert kept == {"id": "P9", "value": 7}
    assert [entry["id"] for entry in measured] == ["P2"] * 3 + ["P3"] * 2
    for entry in measured:
        assert list(entry) == ["id", "what", "value", "unit", "target", "ok", "detail"]
        assert entry["value"] > 0
        assert entry["unit"] in {"ratio", "ms"}
        assert entry["ok"] in {True, False} or (entry["ok"], entry["target"]) == (None, "report")
    assert all(f"| {entry['id']} | {entry['what']} |" in done.stdout for entry in measured)
    assert (done.returncode == 1) == any(entry["ok"] is False for entry in measured)


def test_benchmarks_name_what_there_is_when_asked_for_something_else():
    done = measure("--only", "P2,P17")
    assert done.returncode == 2
    assert "P17: there is P1, P2, P3" in done.stderr
