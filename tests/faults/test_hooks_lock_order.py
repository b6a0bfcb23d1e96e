"""Lock order: whoever works on the same rows at once, nobody sees a deadlock."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext

import psycopg2
import pytest

from reaper import leases
from reaper.errors import LeaseLost, StoreError
from reaper.hooks import HookRunner
from reaper.jobs import HookRef, HookState
from reaper.reap import redeliver, run_tick
from reaper.registry import JobRegistry
from reaper.store import Database, ledger
from tests.faults.test_hooks_lost import scaled
from tests.harness.databases import run as run_sql
from tests.harness.rows import fetch
from tests.harness.waiting import eventually

SECONDS = scaled(60)
TYPES = ("a", "b", "c", "hangs")


class Bells:
    """The broker of this test: a list of messages, some of them lost, some delivered twice."""

    def __init__(self) -> None:
        self._waiting: list[HookRef] = []
        self._lock = threading.Lock()

    def publish(self, hooks) -> bool:
        with self._lock:
            self._waiting += [hook for hook in hooks if random.random() > 0.1]
            self._waiting += random.sample(list(hooks), len(hooks) // 5)
        return random.random() > 0.1

    def take(self) -> HookRef | None:
        with self._lock:
            return (
                self._waiting.pop(random.randrange(len(self._waiting))) if self._waiting else None
            )

    def count(self) -> int:
        return 0


_DAWDLE = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(random() * 0.004); RETURN NEW; END $$
"""


@pytest.fixture
def impatient(dsn) -> str:
    """The test's database, in which locks are held for long and a deadlock shows soon."""
    name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
    run_sql(dsn, f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    run_sql(dsn, _DAWDLE)
    for table in ("job_queue", "job_attempts", "reaper.terminal_hooks", "reaper.hook_types"):
        run_sql(
            dsn,
            f"CREATE TRIGGER dawdle BEFORE UPDATE ON {table} FOR EACH ROW"
            " EXECUTE FUNCTION dawdle()",
        )
    return dsn


@pytest.mark.slow
def test_no_deadlock_when_everybody_works_on_the_same_rows(impatient, settings, connect):
    """For a minute: reapers, redeliveries, hook workers, lost and late hooks, lease holders."""
    bells, stop, errors = Bells(), threading.Event(), []
    common = settings(interval_seconds=0.1, retry_delay_ms=1, claim_batch_size=20)
    observer = connect()
    for job_type in TYPES:
        leases.define_job_type(Database.borrow(observer), job_type, max_attempts=2)

    def tick(database: Database) -> None:
        run_tick(database, common, bells.publish, quiet_seconds=0)
        redeliver(database, common, bells.publish, bells.count)

    work: list[Callable[[Database], None]] = [
        *[tick] * 3,
        *[_lease_holder] * 3,
        *[_hook_worker(bells, common)] * 4,
        _impatience,
    ]

    def loop(step: Callable[[Database], None]) -> None:
        database = Database(impatient)
        while not stop.is_set():
            try:
                step(database)
            except LeaseLost:
                continue
            except StoreError as error:
                errors.append(str(error))
        database.close()

    threads = [threading.Thread(target=loop, args=(step,)) for step in work]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)  # the length is the case
    stop.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    _nobody_is_left(observer)
    (row,) = fetch(
        observer,
        "SELECT deadlocks, xact_commit > 100 AS busy FROM pg_stat_database"
        " WHERE datname = current_database()",
    )
    assert row == {"deadlocks": 0, "busy": True}
    states = fetch(observer, "SELECT DISTINCT state FROM reaper.terminal_hooks")
    assert {"completed", "timed_out"} <= {row["state"] for row in states}


def _nobody_is_left(connection) -> None:
    """Wait until all others have gone: a session reports its statistics when it ends."""
    others = (
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'reaper'"
    )
    eventually(lambda: fetch(connection, others)[0]["n"] == 0)


def _lease_holder(database: Database) -> None:
    """Lease jobs for an instant, so that reapers come for them while they are worked on."""
    leases.enqueue(database, random.choice(TYPES), {})
    for lease in leases.claim(database, "w", batch_size=3, lease_seconds=0.05):
        leases.start(database, lease)
        match random.randrange(4):
            case 0:
                leases.heartbeat(database, lease)
                leases.succeed(database, lease)
            case 1:
                leases.fail(database, lease, kind=random.choice(leases.FAILURE_KINDS))
            case 2:
                time.sleep(0.05)
                leases.heartbeat(database, lease)
            case _:
                pass  # abandoned


def _hook_worker(bells: Bells, common) -> Callable[[Database], None]:
    registry = JobRegistry()

    class HangError(Exception):
        """Stands for the soft limit."""

    def hang(*_: object) -> None:
        time.sleep(random.uniform(0, 0.03))  # lost meanwhile: its outcome comes late
        raise HangError

    def touch(context, _payload, _dead_letter, connection) -> None:
        with connection.cursor() as cursor:  # of the very job that died, as users do
            cursor.execute("UPDATE job_queue SET priority = 1 WHERE id = %s", (context.job_id,))

    registry.add("*", lambda *_: None, max_tries=2)
    registry.add("b", touch, transactional=True)
    registry.add("hangs", hang, max_tries=3)

    def step(database: Database) -> None:
        hook = bells.take()
        if hook is None:
            time.sleep(0.01)
            return
        runner = HookRunner(database, registry, common, "w", nullcontext, HangError)
        runner.run(hook.hook_id, hook.try_number)
        if random.random() < 0.3:  # the parent's report of the same try
            ledger.record_outcome(
                database,
                hook_id=hook.hook_id,
                try_number=hook.try_number,
                state=HookState.TIMED_OUT,
            )

    return step


_HOOKS_DUE = """
UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s' WHERE hook_id IN (
    SELECT hook_id FROM reaper.terminal_hooks WHERE state IN ('pending', 'running')
    ORDER BY random() LIMIT 20 FOR UPDATE SKIP LOCKED
)
"""

_PROBES_DUE = """
UPDATE reaper.hook_types SET probe_at = now() - interval '1 s' WHERE job_type IN (
    SELECT job_type FROM reaper.hook_types FOR UPDATE SKIP LOCKED
)
"""


def _impatience(database: Database) -> None:
    """Make everything due at once: hooks are lost while they run, probes and retries come soon."""
    connection = database.open()
    with connection.cursor() as cursor:
        cursor.execute(_HOOKS_DUE)
        cursor.execute(_PROBES_DUE)
    ledger.hand_back_hooks(database, worker="w")
    time.sleep(0.02)
