"""The throttle: a type whose hooks time out waits in the ledger, one probe at a time."""

import json

from reaper.hooks import Outcome
from reaper.jobs import HookState
from reaper.reap import redeliver
from reaper.store import Database, ledger
from reaper.store.ledger import Throttled
from tests.harness.rows import fetch, hook_states, insert_hook
from tests.hooks.test_claims import claim
from tests.hooks.test_outcomes import record


def time_out(database: Database, connection, times: int, job_type: str = "hangs") -> None:
    for _ in range(times):
        hook_id = insert_hook(connection, job_type=job_type)
        claim(database, hook_id)
        record(database, hook_id, state="timed_out")


def pass_probe_time(connection) -> None:
    """Let the time until the next probe pass."""
    fetch(connection, "UPDATE reaper.hook_types SET probe_at = now() - interval '1 s'")


def _probe(database: Database, connection) -> int:
    """Let the next probe be claimed; return its hook."""
    pass_probe_time(connection)
    insert_hook(connection, job_type="hangs", due_seconds=-1000)
    (probe,) = ledger.take_probes(database)
    assert claim(database, probe.hook_id)
    return probe.hook_id


def throttle(connection, job_type: str = "hangs") -> dict:
    (row,) = fetch(connection, "SELECT * FROM reaper.hook_types WHERE job_type = %s", (job_type,))
    return row


def test_type_is_throttled_after_three_timeouts_in_a_row(database, connect):
    connection = connect()
    time_out(database, connection, 2)
    third = insert_hook(connection, job_type="hangs")
    assert claim(database, third)
    record(database, third, state="timed_out")
    assert isinstance(claim(database, insert_hook(connection, job_type="hangs")), Throttled)
    assert claim(database, insert_hook(connection, job_type="other"))


def test_throttled_hook_waits_in_the_ledger_due(database, connect):
    """A throttled claim takes no try, and the hook rings as soon as the throttle has ended."""
    connection = connect()
    time_out(database, connection, 3)
    hook_id = insert_hook(connection, job_type="hangs", due_seconds=30)
    claim(database, hook_id)
    (row,) = fetch(
        connection,
        "SELECT state, tries, claimed_by, due_at < now() AS due FROM reaper.terminal_hooks"
        " WHERE hook_id = %s",
        (hook_id,),
    )
    assert row == {"state": "pending", "tries": 0, "claimed_by": None, "due": True}
    assert ledger.count_due_hooks(database, count_limit=10) == 0
    record(database, _probe(database, connection))
    assert ledger.count_due_hooks(database, count_limit=10) == 1


def test_throttled_hook_is_acknowledged_without_a_call(runner, registry, database, connect):
    calls = []
    registry.add("hangs", lambda *told: calls.append(told))
    connection = connect()
    time_out(database, connection, 3)
    assert runner().run(insert_hook(connection, job_type="hangs"), 1) == Outcome(None)
    assert calls == []


def test_success_in_between_keeps_a_type_from_being_throttled(database, connect):
    connection = connect()
    time_out(database, connection, 2)
    hook_id = insert_hook(connection, job_type="hangs")
    claim(database, hook_id)
    record(database, hook_id)
    time_out(database, connection, 2)
    assert throttle(connection)["timeouts_in_row"] == 2
    assert claim(database, insert_hook(connection, job_type="hangs"))


def test_success_writes_nothing_about_a_type_that_never_timed_out(database, connect):
    connection = connect()
    hook_id = insert_hook(connection)
    claim(database, hook_id)
    record(database, hook_id)
    assert fetch(connection, "SELECT * FROM reaper.hook_types") == []


def test_redelivery_leaves_a_throttled_type_but_for_one_probe(database, connect, settings):
    connection = connect()
    time_out(database, connection, 3)
    waiting = [insert_hook(connection, job_type="hangs", due_seconds=n - 60) for n in range(20)]
    other = insert_hook(connection, job_type="other", due_seconds=-1)
    rung: list[int] = []

    def publish(hooks) -> bool:
        rung.extend(hook.hook_id for hook in hooks)
        return True

    redeliver(database, settings(), publish, lambda: 0)
    assert rung == [other]
    pass_probe_time(connection)
    redeliver(database, settings(), publish, lambda: 0)
    redeliver(database, settings(), publish, lambda: 0)
    assert rung == [other, waiting[0]]
    assert claim(database, waiting[0])
    assert isinstance(claim(database, waiting[1]), Throttled)


def test_probe_that_completes_ends_the_throttle(database, connect):
    connection = connect()
    time_out(database, connection, 3)
    first, second = (insert_hook(connection, job_type="hangs") for _ in range(2))
    pass_probe_time(connection)
    assert [hook.hook_id for hook in ledger.take_probes(database)] == [first]
    claim(database, first)
    record(database, first)
    assert throttle(connection) == {
        "job_type": "hangs",
        "timeouts_in_row": 0,
        "probe_at": None,
        "probe_hook_id": None,
    }
    assert claim(database, second).hook.hook_id == second


def test_probe_that_times_out_waits_for_the_next(database, connect):
    connection = connect()
    time_out(database, connection, 3)
    first, second = (insert_hook(connection, job_type="hangs") for _ in range(2))
    pass_probe_time(connection)
    ledger.take_probes(database)
    claim(database, first)
    record(database, first, state="timed_out")
    assert throttle(connection)["timeouts_in_row"] == 4
    assert isinstance(claim(database, second), Throttled)
    assert ledger.take_probes(database) == []
    pass_probe_time(connection)
    assert [hook.hook_id for hook in ledger.take_probes(database)] == [second]


def test_probe_runs_alone_however_long_it_takes(database, connect):
    """One probe at a time, also where a hook's time limit is longer than the probes' distance."""
    connection = connect()
    time_out(database, connection, 3)
    first, second = (insert_hook(connection, job_type="hangs") for _ in range(2))
    pass_probe_time(connection)
    ledger.take_probes(database)
    claim(database, first)
    pass_probe_time(connection)
    assert ledger.take_probes(database) == []
    assert isinstance(claim(database, second), Throttled)


def test_probe_is_none_of_the_hooks_that_wait_for_another_try(database, connect):
    """Backoff holds also while the type is throttled."""
    connection = connect()
    time_out(database, connection, 3)
    insert_hook(connection, job_type="hangs", due_seconds=600, failures=1, tries=1)
    pass_probe_time(connection)
    assert ledger.take_probes(database) == []


def test_type_without_a_handler_is_no_longer_throttled(runner, database, connect):
    connection = connect()
    time_out(database, connection, 3)
    first, second = (insert_hook(connection, job_type="hangs") for _ in range(2))
    pass_probe_time(connection)
    ledger.take_probes(database)
    worker = runner()
    assert worker.run(first, 1).state is HookState.UNHANDLED
    assert worker.run(second, 1).state is HookState.UNHANDLED


def test_probes_of_two_redeliveries_at_once_are_one(database, connect):
    """Two connections: neither waits for the other, and a type has one probe."""
    connection, other = connect(), connect()
    time_out(database, connection, 3)
    for _ in range(3):
        insert_hook(connection, job_type="hangs")
    pass_probe_time(connection)
    other.autocommit = False
    assert len(ledger.take_probes(Database.borrow(other))) == 1
    assert ledger.take_probes(database) == []
    other.commit()
    assert ledger.take_probes(database) == []


def test_probe_never_waits_for_an_outcome_and_the_other_way_round(database, connect):
    """Lock order: a probe skips what an outcome holds, so neither can deadlock with the other."""
    connection, other = connect(), connect()
    time_out(database, connection, 3)
    late = insert_hook(connection, job_type="hangs", tries=1, claimed_by="w1")
    pass_probe_time(connection)
    other.autocommit = False
    assert record(Database.borrow(other), late, state="timed_out")  # holds the hook and the type
    assert ledger.take_probes(database) == []
    other.commit()
    assert hook_states(connection) == {"timed_out": 4}


def _plan(connection, name: str, parameters: dict) -> str:
    from reaper import sql  # noqa: PLC0415 -- only the plans need the text

    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql.load(name), parameters)
        return cursor.fetchone()[0][0]["Plan"]


def test_backlog_of_a_throttled_type_costs_one_step_in_the_index(database, connect):
    """100,000 owed hooks of one throttled type: redelivery and probe read a few pages, not all."""
    connection = connect()
    fetch(
        connection,
        "INSERT INTO reaper.terminal_hooks (job_id, run_number, attempt, job_type, payload, reason,"
        " failure_kind, due_at) SELECT n::text, 1, 1, 'hangs', '{}', 'LEASE_EXPIRED',"
        " 'LEASE_EXPIRED', now() - interval '1 hour' FROM generate_series(1, 100000) AS n",
    )
    time_out(database, connection, 3)
    pass_probe_time(connection)
    insert_hook(connection, job_type="other", due_seconds=-1)
    insert_hook(connection, job_type="afterwards", due_seconds=-1)
    after = {"throttle_after": 3}
    rings = {"unheard_seconds": 30, **after}
    plans = {
        "count_due_hooks": {"count_limit": 1_000_000, **after},
        "take_due_hooks": {"batch_size": 2000, **rings},
        "take_probes": {"probe_seconds": 30, **rings},
    }
    connection.autocommit = False
    for name, parameters in plans.items():
        plan = _plan(connection, name, parameters)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200, (name, plan)
        assert "Seq Scan on terminal_hooks" not in json.dumps(plan)
        connection.rollback()
    taken = [hook.job_type for hook in ledger.take_due_hooks(database, batch_size=10)]
    assert taken == ["other", "afterwards"]
    assert len(ledger.take_probes(database)) == 1
