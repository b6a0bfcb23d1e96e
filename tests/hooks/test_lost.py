"""Hooks whose worker is gone: released when they are due, handed back when it says so."""

import threading

from reaper.jobs import HookState
from reaper.reap import redeliver
from reaper.store import Database, ledger
from tests.harness.rows import fetch, hook_states, hooks, insert_hook
from tests.hooks.test_claims import claim
from tests.hooks.test_outcomes import lose, record


def test_running_hook_is_left_alone_when_its_time_is_not_over(database, connect):
    claim(database, insert_hook(connect()))
    assert ledger.release_lost_hooks(database, max_crashes=3, batch_size=10) == []


def test_lost_hook_is_pending_again_and_due_at_once(database, connect):
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    (event,) = lose(connection, database)
    assert (event.hook_id, event.state, event.crashes) == (hook_id, HookState.PENDING, 1)
    (row,) = fetch(
        connection,
        "SELECT state, crashes, error, finished_at, due_at < now() AS due"
        " FROM reaper.terminal_hooks",
    )
    assert row == {
        "state": "pending",
        "crashes": 1,
        "error": "worker lost",
        "finished_at": None,
        "due": True,
    }


def test_hook_fails_when_its_worker_was_lost_three_times(database, connect):
    """Case 25: at most `hook_max_crashes` times, then failed with "worker lost". Never a loop."""
    connection = connect()
    hook_id = insert_hook(connection)
    for number in (1, 2, 3):
        assert claim(database, hook_id, number)
        lose(connection, database)
    (row,) = hooks(connection)
    assert (row["state"], row["crashes"], row["error"]) == ("failed", 3, "worker lost")
    assert row["finished_at"] is not None
    assert claim(database, hook_id, 4) is None
    assert lose(connection, database) == []


def test_lost_hook_is_released_once_by_two_redeliveries_at_the_same_moment(database, connect):
    connection, other = connect(), Database.borrow(connect())
    for number in range(40):
        claim(database, insert_hook(connection), worker=str(number))
    fetch(connection, "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'")
    barrier, released = threading.Barrier(2), []

    def release(store: Database) -> None:
        barrier.wait(10)
        released.extend(ledger.release_lost_hooks(store, max_crashes=3, batch_size=100))

    threads = [threading.Thread(target=release, args=(store,)) for store in (database, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(released) == len({event.hook_id for event in released}) == 40
    assert {row["crashes"] for row in hooks(connection)} == {1}


def test_lost_hook_is_left_to_its_outcome_when_that_is_being_recorded(database, connect):
    """Two connections: a row locked by an outcome is skipped, and the outcome holds."""
    connection, other = connect(), connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    fetch(connection, "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'")
    other.autocommit = False
    assert record(Database.borrow(other), hook_id)
    assert ledger.release_lost_hooks(database, max_crashes=3, batch_size=10) == []
    other.commit()
    assert hook_states(connection) == {"completed": 1}


def test_hook_handed_back_is_pending_and_no_crash(database, connect):
    """What a drain hands back is due at once and counts as no crash, fenced by the worker."""
    connection = connect()
    mine, theirs = insert_hook(connection), insert_hook(connection)
    claim(database, mine, worker="w1")
    claim(database, theirs, worker="w2")
    assert ledger.hand_back_hooks(database, worker="w1") == [mine]
    assert ledger.hand_back_hooks(database, worker="w1") == []
    one, two = fetch(
        connection,
        "SELECT state, crashes, tries, due_at < now() AS due FROM reaper.terminal_hooks"
        " ORDER BY hook_id",
    )
    assert one == {"state": "pending", "crashes": 0, "tries": 1, "due": True}
    assert two["state"] == "running"
    assert claim(database, mine, 2, worker="w3")
    assert ledger.hand_back_hooks(database, worker="w1") == []


def test_hand_back_waits_for_an_outcome_that_is_being_recorded(database, connect):
    connection, other = connect(), connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    other.autocommit = False
    record(Database.borrow(other), hook_id)
    threading.Timer(0.3, other.commit).start()
    assert ledger.hand_back_hooks(database, worker="w1") == []
    assert hook_states(connection) == {"completed": 1}


def test_redelivery_rings_lost_hooks_with_their_next_try(database, connect, settings):
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    fetch(connection, "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'")
    rung = []
    assert redeliver(database, settings(), lambda hooks: rung.extend(hooks) or True, lambda: 0) == 1
    assert [(hook.hook_id, hook.try_number) for hook in rung] == [(hook_id, 2)]
    (row,) = fetch(
        connection,
        "SELECT round(extract(epoch FROM due_at - now()))::int AS wait FROM reaper.terminal_hooks",
    )
    assert row["wait"] == 30


def test_redelivery_rings_only_what_no_message_waits_for(database, connect, settings):
    """P owed hooks past their time, N messages that wait: the P - N longest overdue ring."""
    connection = connect()
    ids = [insert_hook(connection, due_seconds=-n, job_type=str(n % 3)) for n in range(9, 0, -1)]
    insert_hook(connection, due_seconds=30)
    rung = []
    redeliver(database, settings(), lambda hooks: rung.extend(hooks) or True, lambda: 5)
    assert [hook.hook_id for hook in rung] == ids[:4]
    redeliver(database, settings(), lambda hooks: rung.extend(hooks) or True, lambda: 5)
    assert len(rung) == 4


def test_redelivery_leaves_hooks_due_when_publishing_fails(database, connect, settings):
    connection = connect()
    insert_hook(connection, due_seconds=-1)
    assert redeliver(database, settings(), lambda _: False, lambda: 0) == 0
    assert ledger.count_due_hooks(database, count_limit=10) == 1


def test_two_redeliveries_at_once_ring_each_hook_once(database, connect):
    connection, other = connect(), Database.borrow(connect())
    for _ in range(60):
        insert_hook(connection, due_seconds=-1)
    barrier, rung = threading.Barrier(2), []

    def take(store: Database) -> None:
        barrier.wait(10)
        rung.extend(ledger.take_due_hooks(store, batch_size=100))

    threads = [threading.Thread(target=take, args=(store,)) for store in (database, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(rung) == len({hook.hook_id for hook in rung}) == 60


def test_unsent_hooks_are_due_at_once_unless_somebody_claims_them(database, connect):
    """Two connections: marking never waits for a claim, and never undoes it."""
    connection, other = connect(), connect()
    ids = [insert_hook(connection, due_seconds=30) for _ in range(3)]
    other.autocommit = False
    assert claim(Database.borrow(other), ids[1])
    hooks_of = [ledger.HookRef(hook_id, 1, "", "") for hook_id in ids]
    ledger.mark_unsent(database, hooks_of)
    other.commit()
    due = {hook.hook_id for hook in ledger.take_due_hooks(database, batch_size=9)}
    assert due == {ids[0], ids[2]}
    assert hook_states(connection) == {"pending": 2, "running": 1}
