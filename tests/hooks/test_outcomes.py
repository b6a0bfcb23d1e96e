"""The outcome: recorded once per try, late if need be, never over somebody else's claim."""

import os
import signal
import threading
import time
from contextlib import closing
from uuid import uuid4

import psycopg2
import pytest

from reaper.errors import StoreError
from reaper.jobs import HookState
from reaper.store import Database, ledger
from tests.harness import databases
from tests.harness.rows import fetch, hooks, insert_hook
from tests.hooks.test_claims import claim


def record(database: Database, hook_id: int, try_number: int = 1, state: str = "completed", **more):
    return ledger.record_outcome(
        database, hook_id=hook_id, try_number=try_number, state=HookState(state), **more
    )


def lose(connection, database: Database, *, max_crashes: int = 3):
    """Let every running hook's time pass, and release those that are lost."""
    fetch(connection, "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'")
    return ledger.release_lost_hooks(database, max_crashes=max_crashes, batch_size=10)


@pytest.mark.parametrize("state", ["completed", "failed", "timed_out", "unhandled"])
def test_outcome_is_recorded_when_the_hook_is_running(database, connect, state):
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    event = record(database, hook_id, state=state, error="because")
    assert (event.hook_id, event.state) == (hook_id, HookState(state))
    (row,) = hooks(connection)
    assert (row["state"], row["error"], row["claimed_by"]) == (state, "because", "w1")
    assert row["finished_at"] >= row["started_at"]


def test_outcome_is_recorded_once_when_it_is_reported_twice(database, connect):
    """The second report changes nothing, whatever it says."""
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    assert record(database, hook_id)
    assert record(database, hook_id, state="timed_out") is None
    assert hooks(connection)[0]["state"] == "completed"
    assert fetch(connection, "SELECT * FROM reaper.hook_types") == []


def test_failure_counts_once_when_it_is_reported_twice_and_tries_are_left(database, connect):
    """Child and parent may both report a try; the hook is pending again after the first."""
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id, max_tries={"demo": 3})
    assert record(database, hook_id, state="timed_out").state is HookState.PENDING
    assert record(database, hook_id, state="timed_out") is None
    assert record(database, hook_id, state="completed") is None
    (row,) = hooks(connection)
    assert (row["state"], row["failures"], row["finished_at"]) == ("pending", 1, None)
    assert fetch(connection, "SELECT timeouts_in_row FROM reaper.hook_types") == [
        {"timeouts_in_row": 1}
    ]


def test_late_outcome_is_recorded_when_nobody_claimed_the_redelivery(database, connect):
    """A late but true outcome beats a redelivery that is still pending."""
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    lose(connection, database)
    assert hooks(connection)[0]["state"] == "pending"
    assert record(database, hook_id).state is HookState.COMPLETED
    assert claim(database, hook_id, 2) is None
    (row,) = hooks(connection)
    assert (row["state"], row["error"], row["tries"]) == ("completed", None, 1)


def test_late_outcome_is_dropped_when_the_redelivery_was_claimed(database, connect):
    """After redelivery was claimed the first try has nothing to say any more."""
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    lose(connection, database)
    other = Database.borrow(connect())
    assert claim(other, hook_id, 2, worker="w2")
    assert record(database, hook_id, 1) is None
    (row,) = hooks(connection)
    assert (row["state"], row["tries"], row["claimed_by"]) == ("running", 2, "w2")
    assert record(other, hook_id, 2, state="failed")
    assert record(database, hook_id, 1) is None
    assert hooks(connection)[0]["state"] == "failed"


def test_late_outcome_and_the_next_claim_end_in_one_of_both_at_the_same_moment(database, connect):
    """Whichever has the row first: never a hook that ran to its end and runs again as well."""
    connection, other = connect(), Database.borrow(connect())
    for _ in range(50):
        hook_id = insert_hook(connection)
        claim(database, hook_id)
        lose(connection, database)
        barrier = threading.Barrier(2)
        claimed = []

        def redeliver(hook_id=hook_id, barrier=barrier, claimed=claimed) -> None:
            barrier.wait(10)
            claimed.append(claim(other, hook_id, 2, worker="w2"))

        thread = threading.Thread(target=redeliver)
        thread.start()
        barrier.wait(10)
        recorded = record(database, hook_id)
        thread.join(10)
        assert (recorded is None) == (claimed[0] is not None)


def test_late_outcome_is_dropped_when_a_third_crash_ended_the_hook(database, connect):
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    lose(connection, database, max_crashes=1)
    assert record(database, hook_id) is None
    assert hooks(connection)[0]["error"] == "worker lost"


def test_outcome_is_dropped_when_nobody_ever_claimed(database, connect):
    hook_id = insert_hook(connect())
    assert record(database, hook_id, 0) is None


def test_failed_hook_is_tried_again_with_exponential_backoff(runner, registry, connect):
    """Retries go through due_at: 5 s, doubled with each failure, until max_tries are used up."""

    def handler(*_):
        raise ValueError("again")

    registry.add("demo", handler, max_tries=5)
    connection, worker = connect(), runner()
    hook_id = insert_hook(connection)
    waits = []
    for number in range(1, 6):
        worker.run(hook_id, number)
        (row,) = fetch(
            connection,
            "SELECT state, failures, tries, crashes,"
            " round(extract(epoch FROM due_at - started_at))::int AS wait"
            " FROM reaper.terminal_hooks",
        )
        assert (row["failures"], row["tries"], row["crashes"]) == (number, number, 0)
        if row["state"] == "pending":
            waits.append(row["wait"])
    assert waits == [5, 10, 20, 40]
    assert row["state"] == "failed"


def test_backoff_ends_at_an_hour(database, connect):
    connection = connect()
    hook_id = insert_hook(connection, failures=500)
    claim(database, hook_id, max_tries={"*": 1000})
    record(database, hook_id, state="failed")
    (row,) = fetch(
        connection,
        "SELECT round(extract(epoch FROM due_at - started_at))::int AS wait"
        " FROM reaper.terminal_hooks",
    )
    assert row["wait"] == 3600


def test_hook_completes_when_a_later_try_returns(runner, registry, connect):
    tries = []

    def handler(*_):
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")

    registry.add("demo", handler, max_tries=3)
    connection, worker = connect(), runner()
    hook_id = insert_hook(connection)
    states = [worker.run(hook_id, number).state for number in (1, 2, 3)]
    assert states == [HookState.FAILED, HookState.FAILED, HookState.COMPLETED]
    (row,) = hooks(connection)
    assert (row["state"], row["failures"], row["error"]) == ("completed", 2, None)


def test_crashes_are_counted_apart_from_failures(database, connect):
    """A worker that was lost uses up no try of max_tries, and a failure is no crash."""
    connection = connect()
    hook_id = insert_hook(connection)
    two = {"demo": 2}
    claim(database, hook_id, 1, max_tries=two)
    lose(connection, database)
    claim(database, hook_id, 2, max_tries=two)
    assert record(database, hook_id, 2, state="failed").state is HookState.PENDING
    claim(database, hook_id, 3, max_tries=two)
    lose(connection, database)
    (row,) = hooks(connection)
    assert (row["crashes"], row["failures"], row["state"]) == (2, 1, "pending")
    claim(database, hook_id, 4, max_tries=two)
    assert record(database, hook_id, 4, state="failed").state is HookState.FAILED


def test_outcome_is_recorded_when_postgresql_comes_back_in_time(runner, registry, own_postgres):
    """While PostgreSQL is away the outcome is tried again until just before the hard limit."""
    stopped = threading.Event()

    def handler(*_):
        os.kill(own_postgres.pid, signal.SIGQUIT)
        stopped.set()

    registry.add("demo", handler)
    with closing(psycopg2.connect(own_postgres.dsn)) as connection:
        hook_id = insert_hook(connection)
        connection.commit()
    worker = runner(url=own_postgres.dsn, hook_timeout_seconds=60)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(worker.run(hook_id, 1)))
    thread.start()
    assert stopped.wait(30)
    own_postgres.restart("immediate")
    thread.join(60)
    assert [outcome.state for outcome in outcomes] == [HookState.COMPLETED]
    with closing(psycopg2.connect(own_postgres.dsn)) as connection:
        assert hooks(connection)[0]["state"] == "completed"


def test_outcome_is_given_up_before_the_hard_limit_when_postgresql_stays_away(
    runner, registry, own_postgres
):
    """The child gives up in time: else it would be killed, and the kill be taken for a timeout."""
    registry.add("demo", lambda *_: own_postgres.stop("immediate"))
    with closing(psycopg2.connect(own_postgres.dsn)) as connection:
        hook_id = insert_hook(connection)
        connection.commit()
    worker = runner(url=own_postgres.dsn, hook_timeout_seconds=2, hook_kill_grace_seconds=1)
    began = time.monotonic()
    with pytest.raises(StoreError, match="cannot be reached"):
        worker.run(hook_id, 1)
    assert time.monotonic() - began < 3


def test_error_is_kept_in_ascii_when_the_database_cannot_hold_its_characters(
    runner, registry, admin_dsn
):
    """A database in another encoding refuses the text, never the outcome."""
    name = "latin_" + uuid4().hex[:8]
    latin = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'"
    databases.run(admin_dsn, latin)
    url = databases.named(admin_dsn, name)
    try:
        databases.prepare(url)
        registry.add("demo", raises_in_greek)
        with closing(psycopg2.connect(url)) as connection:
            hook_id = insert_hook(connection)
            connection.commit()
            assert runner(url=url).run(hook_id, 1).state is HookState.FAILED
            assert hooks(connection)[0]["error"] == "ValueError: ??????"
    finally:
        databases.run(admin_dsn, f"DROP DATABASE {name} WITH (FORCE)")


def raises_in_greek(*_):
    raise ValueError("\N{GREEK SMALL LETTER ALPHA}" * 6)
