"""P6: from the reap's COMMIT to the handler's first line, on an idle system."""

import statistics
import time
from collections.abc import Iterator

from benchmarks.broker import flush, load_app
from benchmarks.stand import Stand, run, wait_until
from benchmarks.suite import Result, at_most
from reaper.config import Settings
from reaper.reap import run_tick
from reaper.store import Database

SAMPLES = 300

ENTERED = "CREATE TABLE entered (job_id text NOT NULL, at timestamptz NOT NULL)"


def measure(stand: Stand) -> Iterator[Result]:
    """One dead letter at a time; COMMIT by PostgreSQL's own commit timestamps."""
    app = load_app(stand)
    from reaper.publishing import Doorbell  # noqa: PLC0415 -- it loads the app

    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        run(dsn, ENTERED, "INSERT INTO job_definitions (job_type) VALUES ('entered')")
        processes.hook_worker("-l", "INFO", handlers="benchmarks.hook_handlers").ready()
        database, doorbell = Database(dsn), Doorbell(app)
        settings = Settings.load({"database_url": dsn})
        for number in range(stand.scaled(SAMPLES)):
            lease_one(dsn)
            run_tick(database, settings, doorbell.publish, quiet_seconds=0)
            wait_until(dsn, f"SELECT count(*) > {number} FROM entered", every=0.02)
            time.sleep(0.02)
        doorbell.close()
        database.close()
        waits = sorted(
            ms
            for (ms,) in run(
                dsn,
                "SELECT 1000 * extract(epoch FROM e.at - pg_xact_commit_timestamp(d.xmin))::float"
                " FROM entered AS e JOIN job_dead_letters AS d ON d.job_id::text = e.job_id",
            )
        )
    middle, late = statistics.median(waits), waits[int(len(waits) * 0.99) - 1]
    detail = {"samples": len(waits), "max ms": round(waits[-1], 2), "min ms": round(waits[0], 2)}
    yield at_most("P6", "COMMIT to handler, p50", middle, 20, "ms", **detail)
    yield at_most("P6", "COMMIT to handler, p99", late, 100, "ms")


def lease_one(dsn: str, count: int = 1, job_type: str = "entered") -> None:
    """Insert leases that have expired in the job's last attempt."""
    run(
        dsn,
        "INSERT INTO job_queue (id, job_type, payload, status, attempt, max_attempts, next_run_at,"
        " lease_expires_at, worker_id) SELECT gen_random_uuid(), %(job_type)s, '{}', 'LEASED', 1,"
        " 1, now(), now() - interval '1 second', 'w' FROM generate_series(1, %(count)s)",
        parameters={"count": count, "job_type": job_type},
    )
