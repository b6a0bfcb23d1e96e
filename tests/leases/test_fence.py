"""The fence: what a lease holder may write, and that a miss writes nothing at all."""

from dataclasses import replace

import pytest

from reaper import Database, LeaseLost, ReaperError, StoreError, leases
from tests.harness import rows
from tests.harness.waiting import eventually
from tests.leases import stand

WRITES = {
    "heartbeat": leases.heartbeat,
    "start": leases.start,
    "progress": lambda database, lease: leases.progress(
        database, lease, stage="s", done=1, total=2, checkpoint=[1]
    ),
    "succeed": leases.succeed,
    "fail": leases.fail,
    "fail for good": lambda database, lease: leases.fail(database, lease, kind="TERMINAL"),
}

FORGERIES = {
    "another run": {"run_number": 2},
    "an older attempt": {"attempt": 1},
    "a later attempt": {"attempt": 3},
    "another worker": {"worker_id": "w2"},
    "another job": {"job_id": "00000000-0000-0000-0000-000000000000"},
}


def test_heartbeat_extends_the_lease_from_this_moment(database, connect):
    connection = connect()
    lease = stand.claimed(database, lease_seconds=30)
    stand.expire(connection, lease.job_id, seconds=-5)
    leases.heartbeat(database, lease)
    job = rows.job(connection, lease.job_id)
    event = rows.events(connection, lease.job_id)[-1]
    assert (job["lease_expires_at"] - job["last_heartbeat_at"]).total_seconds() == 30
    assert (event["event_type"], event["attempt"]) == ("HEARTBEAT", 1)
    leases.heartbeat(database, lease, lease_seconds=7200)
    job = rows.job(connection, lease.job_id)
    assert (job["lease_expires_at"] - job["last_heartbeat_at"]).total_seconds() == 7200
    assert job["attempt"] == 1


def test_heartbeat_may_shorten_the_lease(database, connect):
    lease = stand.claimed(database, lease_seconds=3600)
    leases.heartbeat(database, lease, lease_seconds=1)
    job = rows.job(connect(), lease.job_id)
    assert (job["lease_expires_at"] - job["last_heartbeat_at"]).total_seconds() == 1


def test_start_marks_the_attempt_once(database, connect):
    connection = connect()
    lease = stand.claimed(database, prestart=True)
    leases.start(database, lease)
    first = rows.attempts(connection, lease.job_id)[0]["execution_started_persisted_at"]
    leases.start(database, lease)
    assert first is not None
    assert rows.attempts(connection, lease.job_id)[0]["execution_started_persisted_at"] == first
    assert rows.job(connection, lease.job_id)["stage"] == "running"
    assert stand.event_types(connection, lease.job_id) == ["ENQUEUED", "LEASED", "STAGE_CHANGED"]


def test_start_is_news_again_when_a_retried_job_still_shows_running(database, connect):
    lease = stand.claimed(database)
    leases.start(database, lease)
    leases.fail(database, lease, retry_delay_ms=0)
    (again,) = leases.claim(database, "w2")
    assert again.stage == "running"
    leases.start(database, again)
    last = rows.events(connect(), lease.job_id)[-1]
    assert (last["event_type"], last["stage"], last["attempt"]) == ("STAGE_CHANGED", "running", 2)
    assert all(
        attempt["execution_started_persisted_at"]
        for attempt in rows.attempts(connect(), lease.job_id)
    )


def test_progress_writes_what_is_given_and_leaves_the_rest(database, connect):
    connection = connect()
    lease = stand.claimed(database)
    expires_at = rows.job(connection, lease.job_id)["lease_expires_at"]
    leases.progress(database, lease, stage="parse", done=1, total=4, checkpoint={"page": 1})
    leases.progress(database, lease, done=2)
    leases.progress(database, lease, stage="write")
    job = rows.job(connection, lease.job_id)
    assert (job["stage"], job["progress_done"], job["progress_total"]) == ("write", 2, 4)
    assert (float(job["progress_pct"]), job["checkpoint"]) == (50.0, {"page": 1})
    assert job["lease_expires_at"] == expires_at
    assert stand.event_types(connection, lease.job_id)[2:] == [
        "STAGE_CHANGED", "PROGRESS", "PROGRESS", "STAGE_CHANGED",
    ]  # fmt: skip
    assert rows.attempts(connection, lease.job_id)[0]["execution_started_persisted_at"] is None


def test_progress_is_refused_whole_when_more_is_done_than_there_is(database, connect):
    lease = stand.claimed(database)
    leases.progress(database, lease, total=4)
    before = stand.everything(connect(), lease.job_id)
    with pytest.raises(StoreError) as caught:
        leases.progress(database, lease, stage="late", done=5)
    assert caught.value.sqlstate == "23514"
    assert stand.everything(connect(), lease.job_id) == before


def test_succeed_ends_job_and_attempt(database, connect):
    connection = connect()
    lease = stand.claimed(database)
    leases.progress(database, lease, done=2, total=2)
    leases.succeed(database, lease)
    job = rows.job(connection, lease.job_id)
    (attempt,) = rows.attempts(connection, lease.job_id)
    event = rows.events(connection, lease.job_id)[-1]
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)
    assert (job["worker_id"], job["lease_expires_at"], job["last_heartbeat_at"]) == (None,) * 3
    assert job["finished_at"] == attempt["finished_at"] == event["occurred_at"]
    assert (attempt["outcome"], attempt["error_code"]) == (None, None)
    assert (event["event_type"], event["progress_done"]) == ("SUCCEEDED", 2)
    assert rows.hooks(connection) == []


def test_succeed_clears_the_error_of_an_earlier_attempt(database, connect):
    lease = stand.claimed(database)
    leases.fail(database, lease, code="first", message="did not work", retry_delay_ms=0)
    leases.succeed(database, leases.claim(database, "w2")[0])
    job = rows.job(connect(), lease.job_id)
    assert (job["status_reason"], job["last_error_code"], job["last_error_message"]) == (None,) * 3
    assert rows.attempts(connect(), lease.job_id)[0]["error_code"] == "first"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_write_is_refused_when_the_fence_does_not_match(database, connect, write):
    connection = connect()
    leases.fail(database, stand.claimed(database), retry_delay_ms=0)
    (lease,) = leases.claim(database, "w1")
    before = stand.everything(connection, lease.job_id)
    for forged in FORGERIES.values():
        with pytest.raises(
            LeaseLost, match="is lost: it expired, was reaped or has ended; nothing"
        ):
            write(database, replace(lease, **forged))
        assert stand.everything(connection, lease.job_id) == before, forged
    write(database, lease)


def test_write_is_refused_when_the_lease_has_expired_and_nobody_reaped_it(database, connect):
    connection = connect()
    lease = stand.claimed(database)
    stand.expire(connection, lease.job_id, seconds=0.001)
    before = stand.everything(connection, lease.job_id)
    for what, write in WRITES.items():
        with pytest.raises(LeaseLost) as caught:
            write(database, lease)
        assert isinstance(caught.value, ReaperError)
        assert lease.job_id in str(caught.value)
        assert stand.everything(connection, lease.job_id) == before, what


@pytest.mark.parametrize("end", ["succeed", "fail", "fail for good"])
def test_write_is_refused_when_the_job_has_ended(database, connect, end):
    connection = connect()
    lease = stand.claimed(database)
    WRITES[end](database, lease)
    before = stand.everything(connection, lease.job_id)
    for what, write in WRITES.items():
        with pytest.raises(LeaseLost):
            write(database, lease)
        assert stand.everything(connection, lease.job_id) == before, what


@pytest.mark.parametrize("status", ["PENDING", "CANCELED"])
def test_write_is_refused_when_somebody_else_moved_the_job(database, connect, status):
    """A person cancels or requeues a job in the database: its worker notices at the next beat."""
    lease = stand.claimed(database)
    rows.fetch(connect(), "UPDATE job_queue SET status = %s", (status,))
    for write in WRITES.values():
        with pytest.raises(LeaseLost):
            write(database, lease)


def test_write_that_waited_for_the_row_past_its_lease_is_refused(dsn, database, connect):
    """Each fenced write takes the row's lock first and looks at the clock after it."""
    holder, watcher = connect(), connect()
    held = {what: stand.claimed(database, job_type=what) for what in WRITES}
    stand.expire(watcher, *(lease.job_id for lease in held.values()), seconds=-3)
    before = {what: stand.everything(watcher, lease.job_id) for what, lease in held.items()}
    holder.autocommit = False
    rows.fetch(holder, "SELECT FROM job_queue FOR UPDATE")
    stores = {what: Database(dsn, application_name="waits") for what in held}
    waiting = {
        what: stand.Background(lambda what=what: WRITES[what](stores[what], held[what]))
        for what in held
    }
    stand.wait_until_blocked(watcher, len(WRITES))
    late = rows.fetch(
        watcher,
        "SELECT a.pid FROM pg_stat_activity AS a, job_queue AS q WHERE a.query_start >="
        " q.lease_expires_at AND a.datname = current_database() AND a.application_name = 'waits'",
    )
    assert late == [], "this machine was too slow to begin the writes within their lease"
    over = "SELECT clock_timestamp() > max(lease_expires_at) AS over FROM job_queue"
    eventually(lambda: rows.fetch(watcher, over)[0]["over"])
    holder.rollback()
    for what, lease in held.items():
        with pytest.raises(LeaseLost):
            waiting[what].result()
        assert stand.everything(watcher, lease.job_id) == before[what]
        stores[what].close()


def test_write_that_waited_for_the_row_within_its_lease_goes_through(dsn, database, connect):
    """The row's newest version counts: here another heartbeat of the same lease changed it."""
    holder, watcher = connect(), connect()
    lease = stand.claimed(database)
    holder.autocommit = False
    leases.heartbeat(Database.borrow(holder), lease, lease_seconds=50)
    second = Database(dsn)
    waiting = stand.Background(lambda: leases.succeed(second, lease))
    stand.wait_until_blocked(watcher)
    holder.commit()
    waiting.result()
    assert rows.job(watcher, lease.job_id)["status"] == "SUCCEEDED"
    second.close()


def test_succeed_commits_together_with_the_callers_own_writes(database, connect):
    """Exactly once for a job whose effect is in the same database."""
    mine = connect()
    rows.fetch(mine, "CREATE TABLE mine (job_id text)")
    lease = stand.claimed(database)
    mine.autocommit = False
    borrowed = Database.borrow(mine)
    rows.fetch(mine, "INSERT INTO mine VALUES (%s)", (lease.job_id,))
    leases.succeed(borrowed, lease)
    mine.rollback()
    assert rows.job(connect(), lease.job_id)["status"] == "LEASED"
    rows.fetch(mine, "INSERT INTO mine VALUES (%s)", (lease.job_id,))
    leases.succeed(borrowed, lease)
    mine.commit()
    assert rows.job(connect(), lease.job_id)["status"] == "SUCCEEDED"
    assert rows.fetch(connect(), "SELECT * FROM mine") == [{"job_id": lease.job_id}]


def test_lost_lease_leaves_the_callers_transaction_usable(database, connect):
    mine = connect()
    rows.fetch(mine, "CREATE TABLE mine (what text)")
    mine.autocommit = False
    lease = stand.claimed(database)
    stand.expire(connect(), lease.job_id)
    rows.fetch(mine, "INSERT INTO mine VALUES ('kept')")
    with pytest.raises(LeaseLost):
        leases.succeed(Database.borrow(mine), lease)
    mine.commit()
    assert rows.fetch(connect(), "SELECT * FROM mine") == [{"what": "kept"}]


def test_heartbeat_goes_on_when_its_connection_was_ended(database, connect):
    lease = stand.claimed(database)
    rows.fetch(connect(), "SELECT pg_terminate_backend(%s)", (database.backend_pid,))
    leases.heartbeat(database, lease)
    assert stand.event_types(connect(), lease.job_id)[-1] == "HEARTBEAT"


def test_end_of_a_job_is_the_callers_to_repeat_when_its_connection_was_ended(database, connect):
    """Sent twice by itself, a success that got through would look like a lost lease."""
    lease = stand.claimed(database)
    rows.fetch(connect(), "SELECT pg_terminate_backend(%s)", (database.backend_pid,))
    with pytest.raises(StoreError):
        leases.succeed(database, lease)
    leases.succeed(database, lease)
    assert rows.job(connect(), lease.job_id)["status"] == "SUCCEEDED"
