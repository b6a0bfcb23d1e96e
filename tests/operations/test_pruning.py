"""Pruning: bounded, never what is unfinished, never what the totals have not counted."""

import threading
from collections import Counter

import pytest

from reaper.operations import pruning
from reaper.store import Database, owed_hooks
from tests.harness.rows import fetch, hook_states
from tests.harness.waiting import eventually

_INSERT = """
INSERT INTO reaper.terminal_hooks (job_id, run_number, attempt, job_type, payload, reason,
    failure_kind, state, due_at, started_at, finished_at, created_at)
SELECT 'j', 1, 1, %(job_type)s, '{}', 'LEASE_EXPIRED', 'LEASE_EXPIRED', %(state)s, now(),
    now() - make_interval(secs => %(age)s + %(took)s), CASE WHEN %(final)s THEN
    now() - make_interval(secs => %(age)s) END, now() - interval '90 days'
FROM generate_series(1, %(count)s) RETURNING hook_id
"""

DAY = 86_400.0


def insert(connection, count, state, *, age=40 * DAY, took=0.2, job_type="demo"):
    fetch(
        connection,
        _INSERT,
        {
            "count": count,
            "state": state,
            "age": age,
            "took": took,
            "final": state not in {"pending", "running"},
            "job_type": job_type,
        },
    )


def totals(database):
    found = Counter()
    for row in owed_hooks.read_hook_totals(database):
        found[row.job_type, row.state, row.upper_seconds] += row.total
    return found


def test_prune_deletes_old_finished_rows_in_batches_and_nothing_else(
    database, connect, monkeypatch
):
    """Never a row whose hook has not reached a final state, however old its death."""
    monkeypatch.setattr(pruning, "PRUNE_BATCH", 4)
    for state in ("completed", "failed", "timed_out", "unhandled"):
        insert(connect(), 3, state)
    insert(connect(), 2, "completed", age=29 * DAY)
    insert(connect(), 1, "pending")
    insert(connect(), 1, "running")
    batches = []

    assert pruning.count_prunable(database, retention_days=30) == 12
    result = pruning.prune(database, retention_days=30, progress=batches.append)

    assert (result.pruned, result.is_done, batches) == (12, True, [4, 4, 4, 0])
    assert hook_states(connect()) == Counter(completed=2, pending=1, running=1)


def test_prune_stops_when_its_time_is_spent_and_goes_on_next_time(database, connect, monkeypatch):
    monkeypatch.setattr(pruning, "PRUNE_BATCH", 5)
    insert(connect(), 12, "completed")

    first = pruning.prune(database, retention_days=30, budget_seconds=0.0)
    rest = pruning.prune(database, retention_days=30)

    assert (first.pruned, first.is_done) == (5, False)
    assert (rest.pruned, rest.is_done) == (7, True)


def test_totals_survive_pruning(database, connect):
    """Counters survive pruning: by type, outcome and duration."""
    insert(connect(), 3, "completed", took=0.2)
    insert(connect(), 2, "timed_out", took=10.05, job_type="slow")
    insert(connect(), 1, "completed", age=1, took=400)
    before = totals(database)

    assert pruning.prune(database, retention_days=30).pruned == 5

    assert totals(database) == before
    assert before == {
        ("demo", "completed", 0.25): 3,
        ("demo", "completed", float("inf")): 1,
        ("slow", "timed_out", 15.0): 2,
    }


def test_prune_leaves_what_the_totals_have_not_counted(database, connect, monkeypatch):
    """A row too young for the roll-up stays, also where the retention is shorter than that."""
    insert(connect(), 2, "completed", age=1)

    assert pruning.prune(database, retention_days=0.1 / DAY).pruned == 0
    monkeypatch.setattr(pruning, "SETTLE_SECONDS", 0.0)
    assert pruning.prune(database, retention_days=0.1 / DAY).pruned == 2


def test_roll_ups_at_once_count_each_hook_once(database, dsn, connect):
    insert(connect(), 500, "completed")
    counted = []

    def run():
        own = Database(dsn)
        counted.append(pruning.roll_up(own))
        own.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sum(counted) == 500
    assert pruning.roll_up(database) == 0
    assert totals(database) == {("demo", "completed", 0.25): 500}


def test_roll_up_goes_on_where_its_batch_ended(database, connect, monkeypatch):
    monkeypatch.setattr(pruning, "ROLL_UP_BATCH", 3)
    for age in range(10):
        insert(connect(), 1, "failed", age=60 + age)

    assert [pruning.roll_up(database) for _ in range(5)] == [3, 3, 3, 1, 0]
    assert sum(totals(database).values()) == 10


@pytest.mark.slow
def test_beat_has_the_ledger_pruned_and_rolled_up_by_the_reap_worker(processes, connect, database):
    """At beat's start and daily: no cron is needed to keep the ledger small."""
    connection = connect()
    insert(connection, 7, "completed")
    insert(connection, 2, "pending")
    processes.beat(interval_seconds=0.3)
    worker = processes.reap_worker(interval_seconds=0.3).ready()

    eventually(lambda: hook_states(connection) == Counter(pending=2), 60)

    assert "ledger_pruned rows=7" in worker.log
    insert(connection, 3, "failed", age=60)
    rolled_up = "SELECT coalesce(sum(total), 0) AS n FROM reaper.hook_totals"
    eventually(lambda: fetch(connection, rolled_up)[0]["n"] == 10, 60)
