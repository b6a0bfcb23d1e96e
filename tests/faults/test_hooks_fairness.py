"""One job type whose hooks hang must not hold all slots while other types wait."""

import time

from tests.faults.test_hooks_lost import FAST, HANDLERS, SOAK, owe, scaled
from tests.harness.rows import effects, fetch
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import doorbell

HANGING, QUICK = 200, 100

SLACK_SECONDS = 10 if not SOAK else 5
"""Eight processes of Celery on a busy machine; without the throttle the hanging ones alone would
take 200 / 8 time limits: 25 s scaled, 250 s in full."""


def test_quick_hooks_are_done_within_a_minute_behind_200_hanging_ones(
    processes, connect, broker_url
):
    """With 200 hanging hooks of one type first and 100 quick ones behind: all quick done in 60 s.

    Scaled 1:10 with the time limits; in full length with the default ones.
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
    began = time.monotonic()
    assert doorbell(broker_url).publish(hooks)
    seconds = scaled(60) + SLACK_SECONDS
    eventually(lambda: len(effects(connection, "ok")) == QUICK, seconds, every=0.2)
    assert time.monotonic() - began < seconds
    (throttled,) = fetch(connection, "SELECT job_type, timeouts_in_row FROM reaper.hook_types")
    assert throttled["job_type"] == "sleeps"
    assert throttled["timeouts_in_row"] >= 3
    waiting = "SELECT count(*) AS n FROM reaper.terminal_hooks WHERE state = 'pending'"
    assert fetch(connection, waiting)[0]["n"] >= HANGING - 3 * 8  # visible as such in the ledger
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
