"""Claiming: which jobs, in which order, what is written, and never the same job twice."""

import pickle

from reaper import Database, leases
from reaper.reap import run_tick
from tests.harness import rows
from tests.leases import stand


def no_publish(hooks):
    return True


def test_claim_takes_the_most_urgent_jobs_that_may_run(database, connect):
    """Priority, then time; not what is due later, switched off, claimed or of a workflow."""
    low = stand.enqueue(database, priority=1)
    first = stand.enqueue(database, priority=9)
    second = stand.enqueue(database, priority=9)
    rows.fetch(
        connect(),
        "UPDATE job_queue SET next_run_at = next_run_at - interval '1 hour' WHERE id = %s",
        (second,),
    )
    stand.enqueue(database, priority=99, delay_seconds=60)
    stand.enqueue(database, "off", priority=99)
    rows.fetch(connect(), "UPDATE job_definitions SET is_enabled = false WHERE job_type = 'off'")
    step = stand.enqueue(database, priority=99)
    rows.fetch(
        connect(),
        "UPDATE job_queue SET workflow_step_id = gen_random_uuid() WHERE id = %s",
        (step,),
    )
    taken = leases.claim(database, "w1", batch_size=2)
    assert [lease.job_id for lease in taken] == [second, first]
    assert [lease.job_id for lease in leases.claim(database, "w1", batch_size=5)] == [low]
    assert leases.claim(database, "w1", batch_size=5) == []


def test_claim_takes_only_the_types_asked_for(database):
    mail, scan = stand.enqueue(database, "mail"), stand.enqueue(database, "scan")
    stand.enqueue(database, "other")
    assert leases.claim(database, "w1", job_types=[]) == []
    assert leases.claim(database, "w1", job_types=["ghost"], batch_size=9) == []
    taken = leases.claim(database, "w1", job_types=("scan", "mail", "mail"), batch_size=9)
    assert {lease.job_id for lease in taken} == {mail, scan}


def test_claim_writes_lease_attempt_and_event(database, connect):
    connection = connect()
    lease = stand.claimed(database, payload={"a": 1}, lease_seconds=90.5)
    job = rows.job(connection, lease.job_id)
    (attempt,) = rows.attempts(connection, lease.job_id)
    event = rows.events(connection, lease.job_id)[-1]
    assert (job["status"], job["attempt"], job["worker_id"]) == ("LEASED", 1, "w1")
    assert (job["lease_expires_at"] - job["last_heartbeat_at"]).total_seconds() == 90.5
    assert job["started_at"] == job["last_heartbeat_at"] == attempt["leased_at"]
    assert (attempt["run_number"], attempt["attempt"], attempt["worker_id"]) == (1, 1, "w1")
    assert attempt["claim_origin"] == "DIRECT"
    assert attempt["execution_started_persisted_at"] is None
    assert (event["event_type"], event["attempt"]) == ("LEASED", 1)
    assert event["payload"]["claim_origin"] == "DIRECT"
    assert (lease.attempt, lease.max_attempts, lease.stage) == (1, 3, "queued")
    assert lease.payload == {"a": 1}
    assert pickle.loads(pickle.dumps(lease)) == lease  # noqa: S301 -- our own bytes


def test_claim_counts_on_and_keeps_the_first_start_when_a_job_is_retried(database, connect):
    connection = connect()
    lease = stand.claimed(database)
    started_at = rows.job(connection, lease.job_id)["started_at"]
    leases.progress(database, lease, stage="half", done=1, total=2, checkpoint={"at": 1})
    leases.fail(database, lease, retry_delay_ms=0)
    (again,) = leases.claim(database, "w2")
    assert (again.attempt, again.run_number, again.stage) == (2, 1, "half")
    assert again.checkpoint == {"at": 1}
    assert rows.job(connection, lease.job_id)["started_at"] == started_at
    assert [a["worker_id"] for a in rows.attempts(connection, lease.job_id)] == ["w1", "w2"]


def test_claims_of_many_workers_never_overlap(dsn, database, connect):
    """Any number of workers may claim at once; no job goes to two."""
    leases.define_job_type(database, "demo")
    rows.fetch(
        connect(),
        "INSERT INTO job_queue (job_type, max_attempts) SELECT 'demo', 3"
        " FROM generate_series(1, 600)",
    )

    def work(worker_id):
        mine, own = [], Database(dsn)
        while batch := leases.claim(own, worker_id, batch_size=7):
            mine += batch
        own.close()
        return mine

    workers = [stand.Background(lambda n=n: work(f"w{n}")) for n in range(6)]
    taken = [lease for worker in workers for lease in worker.result(60)]
    taken += work("last")  # what the others held locked when they stopped
    assert len(taken) == len({lease.job_id for lease in taken}) == 600
    assert {lease.attempt for lease in taken} == {1}
    owners = {
        row["id"]: row["worker_id"] for row in rows.fetch(connect(), "SELECT * FROM job_queue")
    }
    assert owners == {lease.job_id: lease.worker_id for lease in taken}
    assert rows.fetch(connect(), "SELECT count(*) AS n FROM job_attempts") == [{"n": 600}]


def test_claim_skips_a_job_that_another_session_holds(database, connect):
    held, free = stand.enqueue(database, priority=9), stand.enqueue(database, priority=1)
    other = connect()
    other.autocommit = False
    rows.fetch(other, "SELECT FROM job_queue WHERE id = %s FOR UPDATE", (held,))
    assert [lease.job_id for lease in leases.claim(database, "w1", batch_size=9)] == [free]
    other.rollback()
    assert [lease.job_id for lease in leases.claim(database, "w1", batch_size=9)] == [held]


def test_claim_begins_an_attempt_anew_where_somebody_set_the_counter_back(database, connect):
    """One such row at the head of the queue must not stop every claim."""
    lease = stand.claimed(database)
    leases.fail(database, lease, retry_delay_ms=0)
    rows.fetch(connect(), "UPDATE job_queue SET attempt = 0")
    (again,) = leases.claim(database, "w2")
    (attempt,) = rows.attempts(connect(), lease.job_id)
    assert again.attempt == attempt["attempt"] == 1
    assert (attempt["worker_id"], attempt["outcome"], attempt["finished_at"]) == ("w2", None, None)


def test_prestart_claim_loses_no_attempt_when_its_work_never_began(database, connect, settings):
    lease = stand.claimed(database, prestart=True, type_attempts=1)
    assert rows.attempts(connect(), lease.job_id)[0]["claim_origin"] == "WORKER_PRESTART"
    stand.expire(connect(), lease.job_id)
    result = run_tick(database, settings(), no_publish, quiet_seconds=0)
    assert (result.released, result.dead_lettered) == (1, 0)
    job = rows.job(connect(), lease.job_id)
    assert (job["status"], job["attempt"], job["started_at"]) == ("PENDING", 0, None)
    assert rows.attempts(connect(), lease.job_id) == []
    (again,) = leases.claim(database, "w2", prestart=True)
    assert again.attempt == 1


def test_prestart_claim_costs_its_attempt_once_started(database, connect, settings):
    lease = stand.claimed(database, prestart=True, type_attempts=1)
    leases.start(database, lease)
    stand.expire(connect(), lease.job_id)
    result = run_tick(database, settings(), no_publish, quiet_seconds=0)
    assert (result.released, result.dead_lettered) == (0, 1)
    assert rows.attempts(connect(), lease.job_id)[0]["outcome"] == "LEASE_EXPIRED"
