"""Doorbells and workers that are lost: every notice arrives all the same."""

import os
from collections import Counter
from typing import Any

import redis

from reaper.jobs import HookRef
from reaper.publishing import Doorbell
from tests.harness.rows import effects, fetch, hook_states, hooks, insert_hook, insert_leased
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import doorbell

SOAK = bool(os.environ.get("REAPER_TEST_SOAK"))
HANDLERS = "tests.faults.handlers_hooks"
FAST = {"interval_seconds": 0.4}


def scaled(seconds: float) -> float:
    """Return a case's duration: a tenth of it in the suite, all of it in a soak."""
    return seconds if SOAK else seconds / 10


def owe(connection: Any, count: int, job_type: str = "ok", **more: Any) -> list[HookRef]:
    """Insert owed hooks with jobs of their own, not yet due; return their doorbells."""
    many = fetch(
        connection,
        "INSERT INTO reaper.terminal_hooks (job_id, run_number, attempt, job_type, payload, reason,"
        " failure_kind, due_at) SELECT gen_random_uuid(), 1, 1, %(job_type)s, %(payload)s,"
        " 'LEASE_EXPIRED', 'LEASE_EXPIRED', now() + interval '30 s'"
        " FROM generate_series(1, %(count)s) RETURNING hook_id, job_id",
        {"job_type": job_type, "count": count, "payload": "{}"} | more,
    )
    return [HookRef(row["hook_id"], 1, row["job_id"], job_type) for row in many]


def make_due(connection: Any) -> None:
    """Let the time pass until unheard doorbells ring again, and lost hooks count as lost."""
    fetch(
        connection,
        "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'"
        " WHERE state = 'pending' AND due_at > now()",
    )


def all_completed(connection: Any, count: int) -> bool:
    return hook_states(connection) == {"completed": count}


def test_every_dead_letter_gets_its_hook_when_killed_between_commit_and_publish(processes, connect):
    """Case 20: SIGKILL between COMMIT and publish; after a restart every hook runs."""
    connection = connect()
    insert_leased(connection, 20, job_type="ok")
    dying = processes.python(
        *("-m", "tests.harness.failpoints", "reaper.publishing:Doorbell.publish:before", "--"),
        *("worker", "-Q", "reaper", "-c", "1", "-n", "dying"),
        **FAST,
    )
    processes.beat(**FAST)
    dying.wait_for("failpoint", 60)
    dying.end()
    assert hook_states(connection) == {"pending": 20}
    make_due(connection)
    processes.reap_worker(**FAST)
    processes.hook_worker()
    eventually(lambda: all_completed(connection, 20), 60)
    assert len(effects(connection, "ok")) == 20


def test_every_hook_runs_when_the_broker_is_flushed_and_restarted_empty(
    processes, connect, own_valkey
):
    """Case 21: FLUSHALL while 500 messages wait, then a restart without persistence: all run."""
    connection = connect()
    bell = doorbell(own_valkey.url)
    assert bell.publish(owe(connection, 250))
    own_valkey.flush()
    assert bell.count_messages() == 0
    assert bell.publish(owe(connection, 250))
    own_valkey.restart()
    assert bell.count_messages() == 0
    make_due(connection)
    here = processes.at(broker_url=own_valkey.url)
    here.beat(**FAST)
    here.reap_worker(**FAST)
    here.hook_worker()
    eventually(lambda: all_completed(connection, 500), 90)
    assert set(Counter(row["job_id"] for row in effects(connection, "ok")).values()) == {1}


def test_handler_runs_once_when_each_message_comes_three_times(processes, connect, broker_url):
    """Case 22, on a real worker: duplicates one after the other and at the same moment."""
    connection = connect()
    owed = owe(connection, 100, "short")
    bell = doorbell(broker_url)
    assert bell.publish([hook for hook in owed for _ in range(2)])  # side by side in eight children
    assert bell.publish(owed)
    processes.hook_worker(handlers=HANDLERS)
    eventually(lambda: all_completed(connection, 100), 90)
    eventually(lambda: _is_drained(bell, broker_url), 60)
    seen = Counter((row["job_id"], row["what"]) for row in effects(connection))
    assert len(seen) == 200
    assert set(seen.values()) == {1}


def _is_drained(bell: Doorbell, broker_url: str) -> bool:
    with redis.Redis.from_url(broker_url) as client:
        return bell.count_messages() == 0 and client.hlen("reaper:unacked") == 0


def test_hooks_of_a_killed_worker_run_again_one_redelivery_after_they_are_due(processes, connect):
    """Case 31: SIGKILL of the worker with eight hooks running; not the broker's timeout counts.

    Due at timeout + grace + 0.1 s x 8 + 1 s after the claim.
    """
    connection = connect()
    limits = {"hook_timeout_seconds": 3, "hook_kill_grace_seconds": 0.5}
    processes.beat(**FAST)
    processes.reap_worker(**FAST)
    worker = processes.hook_worker(handlers=HANDLERS, **limits).ready()
    insert_leased(connection, 8, job_type="slow", payload='{"seconds": 2}')
    eventually(lambda: hook_states(connection) == {"running": 8}, 60)
    worker.kill()
    claimed = max(row["started_at"] for row in hooks(connection))
    processes.hook_worker(handlers=HANDLERS, **limits).ready()
    eventually(lambda: all_completed(connection, 8), 60)
    rows = hooks(connection)
    assert {(row["tries"], row["crashes"]) for row in rows} == {(2, 1)}
    lease = 3 + 0.5 + 0.8 + 1
    waited = max((row["started_at"] - claimed).total_seconds() for row in rows)
    assert lease - 1 < waited < lease + FAST["interval_seconds"] + 10  # slack: a busy machine
    assert len(effects(connection, "end")) == 8


def test_late_message_of_a_finished_hook_does_nothing(processes, connect, broker_url):
    """What the broker returns after its visibility timeout meets the claim and stops."""
    connection = connect()
    done = insert_hook(connection, job_type="ok", state="completed", tries=1)
    bell = doorbell(broker_url)
    assert bell.publish([HookRef(done, 1, "j", "ok"), HookRef(done, 2, "j", "ok")])
    worker = processes.hook_worker().ready()
    eventually(lambda: _is_drained(bell, broker_url), 60)
    assert effects(connection) == []
    assert "Traceback" not in worker.log
