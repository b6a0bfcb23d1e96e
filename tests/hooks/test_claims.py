"""The claim: pending -> running, once for each try."""

import threading

from reaper.hooks import HookRunner, Outcome
from reaper.jobs import HookState, JobDeadLetterReason, JobFailureKind
from reaper.store import Database, ledger
from tests.harness.rows import fetch, hooks, insert_hook, insert_leased


def claim(database: Database, hook_id: int, try_number: int = 1, worker: str = "w1", **more):
    values = {"worker": worker, "lease_seconds": 13.8, "max_tries": {}} | more
    return ledger.claim_hook(database, hook_id=hook_id, try_number=try_number, **values)


def test_claim_takes_a_pending_hook_and_leases_it(database, connect):
    connection = connect()
    hook_id = insert_hook(connection, due_seconds=30)
    claimed = claim(database, hook_id)
    assert claimed.hook.hook_id == hook_id
    (row,) = fetch(
        connection,
        "SELECT state, tries, claimed_by, max_tries, finished_at,"
        " round(extract(epoch FROM due_at - started_at), 1)::text AS leased"
        " FROM reaper.terminal_hooks",
    )
    assert row == {
        "state": "running",
        "tries": 1,
        "claimed_by": "w1",
        "max_tries": 1,
        "finished_at": None,
        "leased": "13.8",
    }


def test_claim_tells_the_handler_of_the_death(runner, registry, connect):
    """The hook sees what docs/architecture.md lists, worker_id the literal `reaper`."""
    seen = []
    registry.add("demo", lambda *told: seen.append(told))
    organization = "11111111-1111-1111-1111-111111111111"
    hook_id = insert_hook(
        connect(),
        payload='{"a": [1, 2]}',
        run_number=3,
        attempt=4,
        max_attempts=4,
        lease_owner="host-7",
        organization_id=organization,
    )
    assert runner().run(hook_id, 1) == Outcome(HookState.COMPLETED)
    ((context, payload, dead_letter),) = seen
    assert (context.run_number, context.attempt, context.max_attempts) == (3, 4, 4)
    assert (context.worker_id, context.lease_owner) == ("reaper", "host-7")
    assert context.organization_id == organization
    assert payload == {"a": [1, 2]}
    assert dead_letter.reason is JobDeadLetterReason.LEASE_EXPIRED
    assert dead_letter.max_attempts is None
    assert dead_letter.failure.kind is JobFailureKind.LEASE_EXPIRED
    assert dead_letter.failure.code == "job.lease_expired"
    assert dead_letter.failure.message == "Job lease expired before completion."


def test_message_delivered_twice_runs_its_hook_once(runner, registry, connect):
    """Case 22: the same message one after the other."""
    calls = []
    registry.add("demo", lambda *told: calls.append(told))
    hook_id = insert_hook(connect())
    first, second = runner("w1"), runner("w2")
    assert first.run(hook_id, 1).state is HookState.COMPLETED
    assert second.run(hook_id, 1) == Outcome(None)
    assert len(calls) == 1


def test_message_delivered_twice_runs_its_hook_once_at_the_same_moment(runner, registry, connect):
    """Case 22: the same message at the same moment, on two connections, 50 times."""
    calls: list[str] = []
    registry.add("demo", lambda context, *_: calls.append(context.job_id))
    connection = connect()
    workers = [runner("w1"), runner("w2")]
    for number in range(50):
        hook_id = insert_hook(connection, job_id=str(number))
        barrier = threading.Barrier(2)
        outcomes: list[Outcome] = []

        def run(worker: HookRunner, hook_id=hook_id, barrier=barrier, outcomes=outcomes) -> None:
            barrier.wait(10)
            outcomes.append(worker.run(hook_id, 1))

        threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert {outcome.state for outcome in outcomes} == {None, HookState.COMPLETED}
    assert sorted(calls, key=int) == [str(number) for number in range(50)]


def test_claim_waits_for_another_and_finds_nothing_when_that_one_commits(database, connect):
    """Two connections: the second claim of a try sees the first one's, however it is timed."""
    hook_id = insert_hook(connect())
    other = connect()
    other.autocommit = False
    assert claim(Database.borrow(other), hook_id, worker="w2")
    done: list[object] = []
    waiting = threading.Thread(target=lambda: done.append(claim(database, hook_id)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    other.commit()
    waiting.join(10)
    assert done == [None]


def test_claim_finds_nothing_when_the_message_is_of_another_try(database, connect):
    hook_id = insert_hook(connect(), tries=2)
    for number in (1, 2, 4):
        assert claim(database, hook_id, number) is None
    assert claim(database, hook_id, 3)


def test_claim_finds_nothing_when_the_hook_is_running_or_final(database, connect):
    connection = connect()
    for state in ("running", "completed", "failed", "timed_out", "unhandled"):
        assert claim(database, insert_hook(connection, state=state)) is None


def test_claim_finds_nothing_when_there_is_no_such_hook(database):
    assert claim(database, 123_456) is None


def test_claim_sets_the_tries_of_the_type_or_of_the_catch_all(database, connect):
    connection = connect()
    wanted = {"own": 5, "other": 2}
    for job_type in wanted:
        claim(database, insert_hook(connection, job_type=job_type), max_tries={"own": 5, "*": 2})
    assert {row["job_type"]: row["max_tries"] for row in hooks(connection)} == wanted


def test_hook_is_handed_back_when_the_claim_took_the_handlers_whole_time(runner, registry, connect):
    calls = []
    registry.add("demo", lambda *told: calls.append(told))
    connection, other = connect(), connect()
    hook_id = insert_hook(connection)
    other.autocommit = False
    fetch(other, "SELECT FROM reaper.terminal_hooks FOR UPDATE")
    threading.Timer(0.4, other.rollback).start()
    assert runner(hook_timeout_seconds=0.1).run(hook_id, 1) == Outcome(None)
    (row,) = hooks(connection)
    assert (row["state"], row["tries"], row["crashes"]) == ("pending", 1, 0)
    assert calls == []


def test_snapshot_survives_when_the_job_row_is_deleted_before_its_hook_runs(
    runner, registry, connect, settings, database
):
    """Case 35: retention or deletion of the job after its death leaves the hook its payload."""
    from reaper.reap import run_tick  # noqa: PLC0415 -- the only test here that reaps

    seen = []
    registry.add("demo", lambda context, payload, _: seen.append((context.job_id, payload)))
    connection = connect()
    (job_id,) = insert_leased(connection, payload='{"order": 17}')
    result = run_tick(database, settings(), lambda _: True, quiet_seconds=0)
    fetch(connection, "DELETE FROM job_queue WHERE id = %s", (job_id,))
    assert runner().run(result.terminal[0].hook_id, 1).state is HookState.COMPLETED
    assert seen == [(job_id, {"order": 17})]
