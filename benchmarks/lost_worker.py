"""P7: SIGKILL of a hook worker with eight hooks running, until all have run elsewhere."""

import time
from collections.abc import Iterator

from benchmarks.broker import flush
from benchmarks.latency import ENTERED, lease_one
from benchmarks.stand import Stand, run, wait_until
from benchmarks.suite import Result, at_most
from reaper.config import Settings

HOOKS = 8


def measure(stand: Stand) -> Iterator[Result]:
    """Default limits; a second worker and the reap go on."""
    settings = Settings.load({"database_url": stand.dsn})
    limit = settings.hook_lease_seconds + settings.redelivery_seconds + 1
    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        run(dsn, ENTERED, "INSERT INTO job_definitions (job_type) VALUES ('lost_once')")
        processes.beat()
        processes.reap_worker().ready()
        victim = processes.hook_worker(handlers="benchmarks.hook_handlers").ready()
        lease_one(dsn, HOOKS, "lost_once")
        processes.reaper("reap").wait()
        wait_until(dsn, f"SELECT count(*) = {HOOKS} FROM entered")
        claimed = run(
            dsn,
            "SELECT extract(epoch FROM clock_timestamp() - min(started_at))::float"
            " FROM reaper.terminal_hooks",
        )[0][0]
        processes.hook_worker(handlers="benchmarks.hook_handlers").ready()
        began = time.monotonic()
        victim.end()
        text = "SELECT count(*) = 0 FROM reaper.terminal_hooks WHERE state <> 'completed'"
        took = wait_until(dsn, text) - began
    yield at_most(
        "P7",
        "SIGKILL to all eight done",
        took,
        limit,
        "s",
        lease_seconds=settings.hook_lease_seconds,
        redelivery_seconds=settings.redelivery_seconds,
        claimed_seconds_before=round(claimed, 2),
    )
