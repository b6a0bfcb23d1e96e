"""One job type whose hooks hang must not hold all slots while other types wait."""

from tests.faults.test_hooks_lost import FAST, HANDLERS, SOAK, owe, scaled
from tests.harness.rows import effects, fetch, hook_states
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import doorbell

HANGING, QUICK = 200, 100


def test_quick_hooks_are_done_within_a_minute_behind_200_hanging_ones(
    processes, connect, broker_url
):
    """With 200 hanging hooks of one type first and 100 quick ones behind: all quick done in 60 s.

    The time limits are scaled 1:10, in a soak they are the default ones. Whatever the machine: the
    quick ones waited for a few rounds of the hanging ones, not for the 25 there would be.
    """
    connection = connect()
    limits = {"hook_timeout_seconds": scaled(10), "hook_kill_grace_seconds": scaled(2)}
    if not SOAK:
        processes.beat(**FAST)
        processes.reap_worker(**FAST)
    else:
        processes.beat()
        processes.reap_worker()
    worker = processes.hook_worker(handlers=HANDLERS, **limits).ready()
    hooks = [*owe(connection, HANGING, "sleeps"), *owe(connection, QUICK, "ok")]
    assert doorbell(broker_url).publish(hooks)
    eventually(lambda: len(effects(connection, "ok")) == QUICK, 60, every=0.2)
    (throttled,) = fetch(connection, "SELECT job_type, timeouts_in_row FROM reaper.hook_types")
    assert throttled["job_type"] == "sleeps"
    assert throttled["timeouts_in_row"] >= 3
    assert hook_states(connection)["pending"] >= HANGING - 3 * 8
    assert worker.is_running


def test_throttled_type_runs_again_once_a_probe_completes(processes, connect, broker_url):
    """The hooks that waited in the ledger all run when their handler has mended."""
    connection = connect()
    fetch(
        connection,
        "INSERT INTO reaper.hook_types (job_type, timeouts_in_row, probe_at)"
        " VALUES ('ok', 8, now() + interval '2 s')",
    )
    processes.beat(**FAST)
    processes.reap_worker(**FAST)
    processes.hook_worker(handlers=HANDLERS)
    assert doorbell(broker_url).publish(owe(connection, 40, "ok"))
    eventually(lambda: len(effects(connection, "ok")) == 40, 60, every=0.2)
    (row,) = fetch(connection, "SELECT timeouts_in_row FROM reaper.hook_types")
    assert row["timeouts_in_row"] == 0
