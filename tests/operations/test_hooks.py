"""Owed hooks: listed, shown, owed again."""

from datetime import timedelta

import pytest

from reaper.operations import hooks as operations
from reaper.operations import pruning
from reaper.reap import redeliver
from reaper.selection import Selection, SelectionError
from reaper.store import owed_hooks
from tests.harness.rows import fetch, hooks, insert_hook


def insert(connection, state="failed", **columns):
    """A ledger row that ended two minutes ago, after 0.2 s."""
    hook_id = insert_hook(connection, state=state, tries=1, failures=1, **columns)
    if state not in {"pending", "running"}:
        fetch(
            connection,
            "UPDATE reaper.terminal_hooks SET finished_at = now() - interval '2 minutes',"
            " started_at = now() - interval '2 minutes 0.2 s',"
            " owed_since = now() - interval '1 hour' WHERE hook_id = %s RETURNING 1",
            (hook_id,),
        )
    return hook_id


def retry(database, selection):
    return operations.retry_hooks(database, operations.match_retry(database, selection))


def finished(database):
    return {(t.job_type, t.state): t.total for t in owed_hooks.read_hook_totals(database)}


def test_retry_owes_the_unhappy_again_and_redelivery_rings(database, settings, connect):
    """Retrying goes through the ledger: no message is sent, the next redelivery rings."""
    connection = connect()
    unhappy = [insert(connection, state) for state in ("failed", "timed_out", "unhandled")]
    insert(connection, "completed")
    running = insert(connection, "running", due_seconds=60)

    result = retry(database, Selection())

    assert (result.matching, result.changed) == (3, 3)
    rows = {row["hook_id"]: row for row in hooks(connection)}
    assert {i: rows[i]["state"] for i in unhappy} == dict.fromkeys(unhappy, "pending")
    assert {(rows[i]["failures"], rows[i]["crashes"], rows[i]["tries"]) for i in unhappy} == {
        (0, 0, 1)
    }
    assert rows[running]["state"] == "running"
    rung = []
    redeliver(database, settings(), lambda refs: bool(rung.extend(refs)) or True, lambda: 0)
    assert sorted((ref.hook_id, ref.try_number) for ref in rung) == [(i, 2) for i in unhappy]


def test_retry_by_id_runs_a_completed_hook_again(database, connect):
    done = insert(connect(), "completed")

    assert retry(database, Selection(ids=(str(done),))).changed == 1
    [row] = hooks(connect())
    assert row["state"] == "pending"


def test_a_running_hook_is_not_retried(database, connect):
    """Never two runs of one hook at once: a sentence, and nothing is changed."""
    idle, running = insert(connect()), insert(connect(), "running", due_seconds=60)

    with pytest.raises(SelectionError, match=f"hook {running} runs now.*nothing was changed"):
        operations.match_retry(database, Selection(ids=(str(idle), str(running))))
    with pytest.raises(SelectionError, match="running hooks cannot be retried"):
        operations.match_retry(database, Selection(states=("running",)))
    assert {row["state"] for row in hooks(connect())} == {"failed", "running"}


def test_retry_leaves_alone_what_is_claimed_meanwhile(database, connect):
    first, second = insert(connect()), insert(connect())
    matching = operations.match_retry(database, Selection(ids=(str(first), str(second))))
    fetch(
        connect(),
        "UPDATE reaper.terminal_hooks SET state = 'running' WHERE hook_id = %s RETURNING 1",
        (first,),
    )

    result = operations.retry_hooks(database, matching)

    assert (result.changed, result.left) == (1, 1)
    states = {row["hook_id"]: row["state"] for row in hooks(connect())}
    assert states == {first: "running", second: "pending"}


@pytest.mark.parametrize("rolled_up", [False, True])
def test_retry_loses_no_outcome_from_the_totals(database, connect, rolled_up):
    """Counters never go back: an outcome counts once, whether rolled up before the retry or not."""
    for state in ("failed", "completed", "unhandled"):
        insert(connect(), state)
    if rolled_up:
        assert pruning.roll_up(database) == 3
    before = finished(database)

    retry(database, Selection(states=("failed", "unhandled")))

    assert finished(database) == before
    pruning.roll_up(database)
    assert finished(database) == before
    assert before == {("demo", s): 1 for s in ("failed", "completed", "unhandled")}


def test_filters_choose_by_state_type_time_and_organization(database, connect):
    one = "11111111-1111-1111-1111-111111111111"
    fetch(connect(), "INSERT INTO job_definitions VALUES ('mail'), ('fax') RETURNING 1")
    old = insert(connect(), job_type="mail")
    fetch(
        connect(),
        "UPDATE reaper.terminal_hooks SET created_at = now() - interval '2 h' RETURNING 1",
    )
    of_one = insert(connect(), "unhandled", job_type="mail", organization_id=one)
    fax = insert(connect(), "completed", job_type="fax")

    def listed(**filters):
        return [h.hook_id for h in operations.list_hooks(database, Selection(**filters))]

    assert listed() == [fax, of_one, old]
    assert listed(states=("failed", "unhandled")) == [of_one, old]
    assert listed(job_type="mail", since=timedelta(hours=1)) == [of_one]
    assert listed(organization_id=one) == [of_one]
    assert listed(limit=2) == [fax, of_one]
    assert operations.match_retry(database, Selection(job_type="mail", limit=1)).count == 1


def test_a_payload_is_shown_only_when_asked_for(database, connect):
    hook_id = str(insert(connect(), payload='{"secret": 12345678901234567890123}'))

    assert operations.show_hook(database, hook_id).payload_json is None
    shown = operations.show_hook(database, hook_id, with_payload=True)
    assert shown.payload_json == '{"secret": 12345678901234567890123}'
    with pytest.raises(SelectionError, match="no hook 999"):
        operations.show_hook(database, "999")
