"""Rows that died, and what the checks look at."""

from collections.abc import Callable
from typing import Any

import pytest

from reaper.operations.diagnosis import Finding, Scene, diagnose
from reaper.operations.facts import BrokerView
from reaper.reap import run_tick
from tests.harness.rows import fetch, insert_leased

QUIET_BROKER = BrokerView(queues={"reaper": 0, "terminal-hooks": 0})


@pytest.fixture
def kill(database, settings, connect) -> Callable[..., list[str]]:
    """Let jobs die by a real reap; return their ids, the first to die first."""

    def die(count: int = 1, **columns: Any) -> list[str]:
        ids = insert_leased(connect(), count, **columns)
        run_tick(database, settings(), lambda _: True, quiet_seconds=0)
        return ids

    return die


@pytest.fixture
def rows(connect) -> Callable[..., list[dict[str, Any]]]:
    """Run a statement; return its rows as dicts."""
    connection = connect()
    return lambda text, parameters=None: fetch(connection, text, parameters)


@pytest.fixture
def findings(database, settings) -> Callable[..., dict[str, Finding]]:
    """Run all checks on this test's database; return what each found, by id."""

    def run(view: Any = QUIET_BROKER, **values: Any) -> dict[str, Finding]:
        clock = {k: values.pop(k) for k in list(values) if k == "host_clock"}
        scene = Scene(database, settings(**values), lambda: view, **clock)
        found = list(diagnose(scene))
        assert len({f.id for f in found}) == len(found)
        assert all(f.cure for f in found if f.severity != "ok")
        return {f.id: f for f in found}

    return run
