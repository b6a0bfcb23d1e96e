"""P4: empty hooks end to end with the ledger, beside empty Celery tasks on the same settings."""

from collections.abc import Iterator
from typing import Any

from benchmarks.broker import flush, load_app, seconds_to_empty
from benchmarks.stand import Stand, run
from benchmarks.suite import Result, at_least, interleaved, ratio, rounded
from reaper.jobs import HookRef

COUNT = 10_000

OWED = """
INSERT INTO reaper.terminal_hooks (
    job_id, run_number, attempt, job_type, max_attempts, lease_owner, payload, reason, failure_kind,
    error_code, error_message, due_at
)
SELECT
    gen_random_uuid(), 1, 1, %(job_type)s, 1, 'w', '{"a": 1}', 'LEASE_EXPIRED', 'LEASE_EXPIRED',
    'job.lease_expired', 'Job lease expired before completion.', now() + interval '1 hour'
FROM generate_series(1, %(count)s)
RETURNING hook_id, 1, job_id, job_type
"""


def measure(stand: Stand) -> Iterator[Result]:
    """Drain 10 k messages that wait, with a worker of eight that has just become ready."""
    load_app(stand)
    figures = interleaved(
        {"reaper": lambda: _hooks(stand), "bare": lambda: _bare(stand)}, rounds=stand.rounds
    )
    count = stand.scaled(COUNT)
    per_second = {name: [count / s for s in seconds] for name, seconds in figures.items()}
    value = ratio(per_second, "reaper", "bare")
    what = "hooks/s with the ledger / bare tasks/s"
    yield at_least("P4", what, value, 0.7, "ratio", per_second=rounded(per_second))


def owe(dsn: str, job_type: str, count: int) -> list[HookRef]:
    """Write ledger rows of `count` hooks, not due for an hour."""
    parameters = {"job_type": job_type, "count": count}
    return [HookRef(*row) for row in run(dsn, OWED, parameters=parameters)]


def ring(stand: Stand, hooks: list[HookRef]) -> None:
    """Publish their messages."""
    from reaper.publishing import Doorbell  # noqa: PLC0415 -- it loads the app

    doorbell = Doorbell(load_app(stand))
    if not doorbell.publish(hooks):
        raise RuntimeError("the broker did not take the messages")
    doorbell.close()


def _hooks(stand: Stand) -> float:
    flush(stand)
    count = stand.scaled(COUNT)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        ring(stand, owe(dsn, "noop", count))
        processes.hook_worker("-l", "WARNING", handlers="benchmarks.hook_handlers")
        seconds = seconds_to_empty(stand, "reaper:", "terminal-hooks")
        text = "SELECT count(*) FROM reaper.terminal_hooks WHERE state = 'completed'"
        done = run(dsn, text)[0][0]
    if done != count:
        raise RuntimeError(f"{done} hooks completed, not {count}")
    return seconds


def _bare(stand: Stand) -> float:
    from benchmarks import bare  # noqa: PLC0415 -- it reads the environment

    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        with bare.app.producer_pool.acquire(block=True) as producer:
            for number in range(stand.scaled(COUNT)):
                bare.noop.apply_async((number, 1), producer=producer)
        command: list[Any] = ["-m", "celery", "-A", "benchmarks.bare", "worker", "-Q", "bare"]
        processes.python(*command, "-n", "bare", "-l", "WARNING")
        return seconds_to_empty(stand, "bare:", "bare")
