"""P4: empty hooks end to end with the ledger, beside empty Celery tasks on the same settings.

How both are timed is P5's too.
"""

from collections.abc import Iterator

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
    count = stand.scaled(COUNT)
    per_second = interleaved(
        {
            "reaper": lambda: hooks_per_second(stand, "noop", count),
            "bare": lambda: tasks_per_second(stand, "noop", count),
        },
        rounds=stand.rounds,
    )
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


def hooks_per_second(stand: Stand, job_type: str, count: int) -> float:
    """Drain `count` hooks of a type that wait, with a worker that starts; all must complete."""
    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        ring(stand, owe(dsn, job_type, count))
        processes.hook_worker("-l", "WARNING", handlers="benchmarks.hook_handlers")
        seconds = seconds_to_empty(stand, "reaper:", "terminal-hooks")
        text = "SELECT count(*) FROM reaper.terminal_hooks WHERE state = 'completed'"
        done = run(dsn, text)[0][0]
    if done != count:
        raise RuntimeError(f"{done} hooks completed, not {count}")
    return count / seconds


def tasks_per_second(stand: Stand, task: str, count: int) -> float:
    """Drain `count` tasks of benchmarks/bare.py the same way."""
    from benchmarks import bare  # noqa: PLC0415 -- it reads the environment

    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        with bare.app.producer_pool.acquire(block=True) as producer:
            for number in range(count):
                getattr(bare, task).apply_async((number, 1), producer=producer)
        command = "-m celery -A benchmarks.bare worker -Q bare -n bare -l WARNING"
        processes.python(*command.split())
        return count / seconds_to_empty(stand, "bare:", "bare")
