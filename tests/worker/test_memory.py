"""What eight children cost: little, for they share what their parent has loaded."""

import psutil

from tests.harness.rows import hook_states
from tests.harness.waiting import eventually
from tests.worker.ringing import Ringer

HOOKS = 120
"""Enough for each of two children to collect its garbage, all generations of it."""

OWN_SHARE_MAX = 0.4
"""About 0.2 is measured; 0.55 where the collector writes into the shared pages."""


def own_share(pid: int) -> float:
    """Return how much of a process's memory it shares with nobody."""
    memory = psutil.Process(pid).memory_full_info()
    return memory.uss / memory.rss


def test_worker_children_share_their_parents_memory_when_they_have_run_hooks(
    processes, connect, dsn, broker_url
):
    """docs/performance.md: a hook worker is no larger than a bare Celery worker."""
    ringer = Ringer(connect(), dsn, broker_url)
    worker = processes.hook_worker("-c", "2").ready()
    ringer.hooks("ok", HOOKS)
    eventually(lambda: hook_states(ringer.connection)["completed"] == HOOKS, 60)
    shares = [own_share(pid) for pid in worker.children()]
    ringer.close()
    assert len(shares) == 2
    assert max(shares) < OWN_SHARE_MAX
