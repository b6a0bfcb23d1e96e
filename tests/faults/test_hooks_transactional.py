"""`transactional=True` under kill -9 at random points: effects happen exactly once."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest

from reaper.reap import redeliver
from tests.faults.test_hooks_lost import HANDLERS, SOAK, make_due, owe
from tests.harness.rows import effects, fetch, hook_states, hooks
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import doorbell

HOOKS = 400 if SOAK else 40
KILLS = 40 if SOAK else 4
LIMITS = {
    "hook_timeout_seconds": 2,
    "hook_kill_grace_seconds": 0.3,
    "hook_max_crashes": 100,
    "hook_concurrency": 4,
}


@pytest.mark.slow
def test_transactional_effects_happen_exactly_once_under_kill_9(
    processes, connect, broker_url, database, settings
):
    """Children and whole workers are killed at random points; every effect is there once."""
    connection, chance = connect(), random.Random(20)
    owed = owe(connection, HOOKS, "exact")
    bell = doorbell(broker_url)
    assert bell.publish(owed)

    def run(seconds: float) -> None:
        """Let workers work for a while, as the redelivery beside them would."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            make_due(connection)
            redeliver(database, settings(**LIMITS), bell.publish, lambda: 0)
            time.sleep(0.1)

    def start():
        return processes.hook_worker(handlers=HANDLERS, **LIMITS).ready()

    worker = start()
    for number in range(KILLS):
        target = len(effects(connection)) + 2 * HOOKS // KILLS // 3
        wanted = min(target, 2 * HOOKS)
        eventually(
            lambda wanted=wanted: run(0.2) or len(effects(connection)) >= wanted, 60, every=0
        )
        time.sleep(chance.uniform(0, 0.1))  # at a random point
        children = worker.children()
        if number % 2:
            worker.kill()
            worker = start()
        else:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(children), signal.SIGKILL)
    eventually(lambda: run(0.2) or hook_states(connection) == {"completed": HOOKS}, 90, every=0)

    seen = Counter((row["job_id"], row["what"]) for row in effects(connection))
    assert seen == Counter((hook.job_id, what) for hook in owed for what in ("first", "second"))
    assert sum(row["crashes"] for row in hooks(connection)) >= 1  # the kills did hit hooks
    assert fetch(connection, "SELECT * FROM reaper.hook_types WHERE timeouts_in_row > 0") == []
