"""`transactional=True`: the handler's effects and `completed` commit together, or neither does."""

from contextlib import suppress
from functools import partial

import psycopg2
import pytest

from reaper.errors import StoreError
from reaper.jobs import HookState
from tests.harness.rows import effects, fetch, hook_states, hooks, insert_hook
from tests.hooks.conftest import limited
from tests.hooks.test_claims import claim
from tests.hooks.test_outcomes import lose


def insert(connection, what: str = "effect") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (job_id, run_number, attempt, what) VALUES ('j', 1, 1, %s)",
            (what,),
        )


def send(connection, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


@pytest.fixture
def run(runner, registry, connect):
    """Run a transactional handler; return the ledger row, once with the runner's outcome."""

    def run_handler(act, **values):
        def handler(_context, _payload, _dead_letter, connection):
            insert(connection)
            act(connection)

        registry.add("demo", handler, transactional=True)
        observer = connect()
        outcome = runner(**values).run(insert_hook(observer), 1)
        (row,) = hooks(observer)
        return outcome, row

    return run_handler


def test_effects_and_completed_commit_together(run, connect):
    """Seen from another connection, there is never one without the other."""
    observer = connect()
    seen = []

    def look(_connection) -> None:
        seen.append((len(effects(observer)), hook_states(observer)["completed"]))

    outcome, row = run(look)
    assert seen == [(0, 0)]
    assert (outcome.state, row["state"]) == (HookState.COMPLETED, "completed")
    assert len(effects(observer)) == 1
    (same,) = fetch(
        observer,
        "SELECT h.xmin = e.xmin AS together FROM reaper.terminal_hooks AS h, effects AS e",
    )
    assert same["together"]


def test_effects_are_rolled_back_when_the_handler_raises(run, connect):
    def act(_connection) -> None:
        raise ValueError("no")

    _, row = run(act)
    assert (row["state"], row["error"]) == ("failed", "ValueError: no")
    assert effects(connect()) == []


ENDINGS = {
    "commit()": lambda c: c.commit(),
    "rollback()": lambda c: c.rollback(),
    "close()": lambda c: c.close(),
    "reset()": lambda c: c.reset(),
    "autocommit": lambda c: setattr(c, "autocommit", True),
    "set_session()": lambda c: c.set_session(readonly=True),
    "set_isolation_level()": lambda c: c.set_isolation_level(0),
    "set_client_encoding()": lambda c: c.set_client_encoding("LATIN1"),
    "with connection": lambda c: c.__enter__() and c.__exit__(None, None, None),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_handler_is_refused_what_would_end_its_transaction(run, connect, ending):
    """Refused before it happens: nothing the handler did can be committed without its hook."""
    _, row = run(ENDINGS[ending])
    assert row["state"] == "failed"
    assert row["error"].startswith("LentConnectionError: ")
    assert "reaper commits" in row["error"]
    assert effects(connect()) == []


def swallowing(ending: str):
    def act(connection) -> None:
        with suppress(psycopg2.Error):
            ENDINGS[ending](connection)

    return act


@pytest.mark.parametrize("ending", ENDINGS)
def test_hook_fails_when_the_handler_swallows_the_refusal(run, connect, ending):
    """What it wanted to undo must not be committed after all."""
    outcome, row = run(swallowing(ending))
    assert outcome.error_type == "TransactionBroken"
    assert "on the connection it was lent, its effects were rolled back" in row["error"]
    assert row["state"] == "failed"
    assert effects(connect()) == []


@pytest.mark.parametrize("text", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "COMMIT; BEGIN"])
def test_hook_fails_when_the_handler_ends_its_transaction_in_sql(run, connect, text):
    """The transaction's id tells; what follows the handler's own COMMIT is undone."""

    def act(connection) -> None:
        send(connection, text)
        insert(connection, "after")

    _, row = run(act)
    assert row["state"] == "failed"
    assert row["error"].startswith("the handler sent COMMIT or ROLLBACK")


def test_hook_fails_when_the_handler_leaves_its_transaction_aborted(run, connect):
    def act(connection) -> None:
        with suppress(psycopg2.Error):
            send(connection, "SELECT 1 / 0")

    _, row = run(act)
    assert row["state"] == "failed"
    assert "its transaction is aborted" in row["error"]
    assert effects(connect()) == []


def test_hook_completes_when_the_handler_undoes_a_part_by_a_savepoint(run, connect):
    def act(connection) -> None:
        send(connection, "SAVEPOINT part")
        insert(connection, "undone")
        send(connection, "ROLLBACK TO SAVEPOINT part")

    _, row = run(act)
    assert row["state"] == "completed"
    assert [effect["what"] for effect in effects(connect())] == ["effect"]


def test_statement_ends_with_the_time_left_to_the_handler(run, connect):
    """SET LOCAL statement_timeout: also where no soft limit reaches a blocked query."""
    limits = {"hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 1}
    outcome, row = run(lambda c: send(c, "SELECT pg_sleep(60)"), **limits)
    assert outcome.error_type == "QueryCanceled"
    assert (row["state"], effects(connect())) == ("failed", [])


def test_hook_times_out_when_the_limit_is_reached_in_a_query(runner, registry, connect):
    """The soft limit is due before the statement's own, and is what is recorded."""

    def handler(_context, _payload, _dead_letter, connection):
        insert(connection)
        send(connection, "SELECT pg_sleep(60)")

    registry.add("demo", handler, transactional=True)
    observer = connect()
    limits = {"hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 1}
    worker = runner(guard=partial(limited, 0.5), **limits)
    assert worker.run(insert_hook(observer), 1).state is HookState.TIMED_OUT
    assert effects(observer) == []


def test_effects_are_rolled_back_when_the_hook_was_claimed_again(run, connect, database):
    """The record hits no row: somebody else has the hook now, and is left alone."""
    observer = connect()

    def act(_connection) -> None:
        lose(observer, database)
        assert claim(database, hooks(observer)[0]["hook_id"], 2, worker="w2")

    outcome, row = run(act)
    assert outcome.error_type == "TransactionBroken"
    assert outcome.error.startswith("the hook was claimed again")
    assert (row["state"], row["claimed_by"], row["tries"]) == ("running", "w2", 2)
    assert effects(observer) == []


def test_late_effects_are_kept_when_nobody_claimed_the_redelivery(run, connect, database):
    observer = connect()
    _, row = run(lambda _: lose(observer, database))
    assert row["state"] == "completed"
    assert len(effects(observer)) == 1


def test_hook_runs_again_when_the_connection_is_lost_before_the_commit(
    runner, registry, connect, database
):
    """Nobody's fault: nothing is recorded, nothing is kept, the hook is lost and runs again."""
    observer = connect()
    broken = []

    def handler(_context, _payload, _dead_letter, connection):
        insert(connection)
        if not broken:
            broken.append(connection.info.backend_pid)
            fetch(observer, "SELECT pg_terminate_backend(%s, 5000)", tuple(broken))

    registry.add("demo", handler, transactional=True)
    hook_id, worker = insert_hook(observer), runner()
    with pytest.raises(StoreError):
        worker.run(hook_id, 1)
    assert (hook_states(observer), effects(observer)) == ({"running": 1}, [])
    lose(observer, database)
    assert worker.run(hook_id, 2).state is HookState.COMPLETED
    assert len(effects(observer)) == 1


def test_hook_fails_when_a_constraint_fails_at_the_commit(run, connect):
    """The handler's deferred constraints stay deferred, and a commit they refuse is its failure."""
    fetch(connect(), "CREATE TABLE pairs (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def act(connection) -> None:
        send(connection, "INSERT INTO pairs VALUES (1), (1)")
        send(connection, "SELECT 1")

    outcome, row = run(act)
    assert outcome.error_type == "StoreError"
    assert "SQLSTATE 23505" in row["error"]
    assert (row["state"], effects(connect())) == ("failed", [])


def test_deferred_constraint_holds_off_until_the_commit(run, connect):
    fetch(connect(), "CREATE TABLE pairs (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def act(connection) -> None:
        send(connection, "INSERT INTO pairs VALUES (1), (1)")
        send(connection, "DELETE FROM pairs")

    assert run(act)[1]["state"] == "completed"


def test_async_handler_may_be_transactional(runner, registry, connect):
    async def handler(_context, _payload, _dead_letter, connection):
        insert(connection)

    registry.add("demo", handler, transactional=True)
    observer = connect()
    assert runner().run(insert_hook(observer), 1).state is HookState.COMPLETED
    assert len(effects(observer)) == 1


def test_transactional_hook_is_tried_again_when_it_has_tries_left(runner, registry, connect):
    def handler(_context, _payload, _dead_letter, connection):
        insert(connection)
        raise ValueError("again")

    registry.add("demo", handler, transactional=True, max_tries=2)
    observer, worker = connect(), runner()
    hook_id = insert_hook(observer)
    worker.run(hook_id, 1)
    assert hook_states(observer) == {"pending": 1}
    worker.run(hook_id, 2)
    assert (hook_states(observer), effects(observer)) == ({"failed": 1}, [])
