"""What a reap writes, row by row: every column, every event, on both servers."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reaper.jobs import LEASE_EXPIRED_CODE, LEASE_EXPIRED_MESSAGE
from tests.harness import rows
from tests.reap.conftest import EACH_SERVER, Tick

pytestmark = EACH_SERVER

LEASE = {"lease_expires_at": None, "last_heartbeat_at": None, "worker_id": None}
WHY = {
    "status_reason": "LEASE_EXPIRED",
    "last_error_code": LEASE_EXPIRED_CODE,
    "last_error_message": LEASE_EXPIRED_MESSAGE,
}
CLOSED = {
    "outcome": "LEASE_EXPIRED",
    "error_code": LEASE_EXPIRED_CODE,
    "error_message": LEASE_EXPIRED_MESSAGE,
}
ORGANIZATION = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def one(connection: Any, job_id: str) -> dict[str, Any]:
    (attempt,) = rows.attempts(connection, job_id)
    return attempt


def told(connection: Any, job_id: str) -> list[tuple[str, int, Any]]:
    return [
        (event["event_type"], event["attempt"], event["payload"])
        for event in rows.events(connection, job_id)
    ]


def test_reap_releases_a_prestart_claim_that_never_started(tick: Tick, connection: Any) -> None:
    (job_id,) = rows.insert_leased(connection, attempt=1, max_attempts=1, prestart=True)
    dirty = {"status_reason": "old", "last_error_code": "old", "last_error_message": "old"}
    update(connection, job_id, **dirty)
    before = rows.job(connection, job_id)

    result = tick()

    after = rows.job(connection, job_id)
    now = after["updated_at"]
    assert after == before | LEASE | {
        "status": "PENDING",
        "attempt": 0,
        "next_run_at": now,
        "started_at": None,
        "status_reason": None,
        "last_error_code": None,
        "last_error_message": None,
        "updated_at": now,
    }
    assert rows.attempts(connection, job_id) == []
    (event,) = rows.events(connection, job_id)
    assert event == {
        "id": event["id"],
        "job_id": job_id,
        "run_number": 1,
        "attempt": 1,
        "event_type": "REQUEUED",
        "stage": None,
        "progress_done": None,
        "progress_total": None,
        "payload": {"reason": "LEASE_EXPIRED_BEFORE_RUNNING_PERSISTED"},
        "occurred_at": now,
    }
    assert rows.dead_letter(connection, job_id) is None
    assert rows.hooks(connection) == []
    assert (result.processed, result.released, result.dead_lettered) == (1, 1, 0)


def test_reap_keeps_started_at_when_a_later_attempt_is_released(
    tick: Tick, connection: Any
) -> None:
    (job_id,) = rows.insert_leased(connection, attempt=3, max_attempts=3, prestart=True)
    before = rows.job(connection, job_id)
    tick()
    after = rows.job(connection, job_id)
    assert after["started_at"] == before["started_at"] is not None
    assert (after["status"], after["attempt"]) == ("PENDING", 2)


def test_reap_retries_an_attempt_that_is_not_the_last(tick: Tick, connection: Any) -> None:
    (job_id,) = rows.insert_leased(connection, attempt=2, max_attempts=3)
    update(connection, job_id, stage="copying", progress_done=3, progress_total=4, checkpoint="{}")
    before, tried = rows.job(connection, job_id), one(connection, job_id)

    result = tick(retry_delay_ms=1500)

    after = rows.job(connection, job_id)
    now = after["updated_at"]
    assert after == before | LEASE | WHY | {
        "status": "PENDING",
        "next_run_at": now + timedelta(milliseconds=1500),
        "updated_at": now,
    }
    closed = one(connection, job_id)
    assert closed == tried | CLOSED | {"finished_at": now, "retry_delay_ms": 1500}
    failed, retry = told(connection, job_id)
    assert failed == (
        "FAILED",
        2,
        {
            "kind": "LEASE_EXPIRED",
            "error_code": LEASE_EXPIRED_CODE,
            "error_message": LEASE_EXPIRED_MESSAGE,
            "started_without_renewal_heartbeat": False,
        },
    )
    assert retry[:2] == ("RETRY_SCHEDULED", 2)
    assert datetime.fromisoformat(retry[2].pop("next_run_at")) == after["next_run_at"]
    assert retry[2] == {
        "kind": "LEASE_EXPIRED",
        "retry_delay_ms": 1500,
        "started_without_renewal_heartbeat": False,
    }
    assert {event["occurred_at"] for event in rows.events(connection, job_id)} == {now}
    assert rows.dead_letter(connection, job_id) is None
    assert rows.hooks(connection) == []
    assert (result.processed, result.retried, result.terminal) == (1, 1, ())


def test_reap_dead_letters_the_last_attempt_and_owes_its_hook(tick: Tick, connection: Any) -> None:
    """The dead letter and the ledger row of its hook are born together."""
    (job_id,) = rows.insert_leased(
        connection, attempt=3, max_attempts=3, payload='{"n": 1}', organization_id=ORGANIZATION
    )
    update(connection, job_id, stage="copying", checkpoint='{"at": 7}')
    before, tried = rows.job(connection, job_id), one(connection, job_id)

    result = tick()

    after = rows.job(connection, job_id)
    now = after["updated_at"]
    assert after == before | LEASE | WHY | {
        "status": "DEAD_LETTERED",
        "finished_at": now,
        "updated_at": now,
    }
    assert one(connection, job_id) == tried | CLOSED | {"finished_at": now}
    assert [(name, attempt) for name, attempt, _ in told(connection, job_id)] == [
        ("FAILED", 3),
        ("DEAD_LETTERED", 3),
    ]
    assert told(connection, job_id)[1][2] == {
        "kind": "LEASE_EXPIRED",
        "error_code": LEASE_EXPIRED_CODE,
        "started_without_renewal_heartbeat": False,
    }
    assert rows.dead_letter(connection, job_id) == {
        "job_id": job_id,
        "job_type": "demo",
        "organization_id": ORGANIZATION,
        "run_number": 1,
        "attempt": 3,
        "error_code": LEASE_EXPIRED_CODE,
        "error_message": LEASE_EXPIRED_MESSAGE,
        "payload_snapshot": {"n": 1},
        "checkpoint_snapshot": {"at": 7},
        "failed_at": now,
        "created_at": now,
    }
    (hook,) = rows.hooks(connection)
    expected = {
        "job_id": job_id,
        "run_number": 1,
        "attempt": 3,
        "job_type": "demo",
        "organization_id": ORGANIZATION,
        "max_attempts": 3,
        "lease_owner": "w1",
        "payload": {"n": 1},
        "reason": "LEASE_EXPIRED",
        "failure_kind": "LEASE_EXPIRED",
        "error_code": LEASE_EXPIRED_CODE,
        "error_message": LEASE_EXPIRED_MESSAGE,
        "state": "pending",
        "tries": 0,
        "failures": 0,
        "crashes": 0,
        "due_at": now + timedelta(seconds=30),
        "claimed_by": None,
        "started_at": None,
        "finished_at": None,
        "error": None,
        "created_at": now,
    }
    assert {key: hook[key] for key in expected} == expected
    (record,) = result.terminal
    assert (record.hook_id, record.job_id, record.job_type) == (hook["hook_id"], job_id, "demo")
    assert (record.organization_id, record.run_number, record.attempt) == (ORGANIZATION, 1, 3)
    assert [(ref.hook_id, ref.try_number) for ref in tick.rung] == [(hook["hook_id"], 1)]


def test_reap_tolerates_a_missing_attempt_row(tick: Tick, connection: Any) -> None:
    """A lease without its attempt row is reaped like any other."""
    (dead,) = rows.insert_leased(connection, max_attempts=1, prestart=True)
    (again,) = rows.insert_leased(connection, max_attempts=3, prestart=True)
    rows.fetch(connection, "DELETE FROM job_attempts")
    tick()
    for job_id, status in ((dead, "DEAD_LETTERED"), (again, "PENDING")):
        assert rows.job(connection, job_id)["status"] == status
        assert told(connection, job_id)[0][0] == "FAILED"
        assert rows.attempts(connection, job_id) == []


def test_reap_leaves_attempts_of_other_runs_and_numbers_alone(tick: Tick, connection: Any) -> None:
    (job_id,) = rows.insert_leased(connection, attempt=2, max_attempts=2, run_number=2)
    other = (
        "INSERT INTO job_attempts (job_id, run_number, attempt, worker_id, leased_at, started_at,"
        " claim_origin) VALUES (%s, %s, %s, 'w0', now(), now(), 'WORKER_PRESTART')"
    )
    for run_number, attempt in ((1, 2), (2, 1), (2, 3)):
        rows.fetch(connection, other, (job_id, run_number, attempt))
    tick()
    finished = {
        (row["run_number"], row["attempt"]): row["outcome"]
        for row in rows.attempts(connection, job_id)
    }
    assert finished == {(1, 2): None, (2, 1): None, (2, 2): "LEASE_EXPIRED", (2, 3): None}


def test_reap_overwrites_the_dead_letter_of_an_earlier_run(tick: Tick, connection: Any) -> None:
    """A later run's death overwrites all but job_type, organization_id and created_at."""
    (job_id,) = rows.insert_leased(connection, run_number=2, payload='{"run": 2}')
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    rows.fetch(
        connection,
        "INSERT INTO job_dead_letters (job_id, job_type, organization_id, run_number, attempt,"
        " error_code, error_message, payload_snapshot, checkpoint_snapshot, failed_at, created_at)"
        " VALUES (%s, 'demo', %s, 1, 9, 'c', 'm', '{\"run\": 1}', '{}', %s, %s)",
        (job_id, ORGANIZATION, long_ago, long_ago),
    )
    tick()
    assert rows.dead_letter(connection, job_id) == {
        "job_id": job_id,
        "job_type": "demo",
        "organization_id": ORGANIZATION,
        "run_number": 2,
        "attempt": 1,
        "error_code": LEASE_EXPIRED_CODE,
        "error_message": LEASE_EXPIRED_MESSAGE,
        "payload_snapshot": {"run": 2},
        "checkpoint_snapshot": None,
        "failed_at": rows.job(connection, job_id)["finished_at"],
        "created_at": long_ago,
    }


START, BEFORE, AFTER = "50 minutes", "55 minutes", "45 minutes"
"""Ago: the known start of the execution, and last heartbeats around it."""

FLAGS = [
    # stage, marker of the attempt, first STAGE_CHANGED/running event, last heartbeat -> flag
    ("running", START, None, None, True),
    ("running", START, None, BEFORE, True),
    ("running", START, None, START, True),
    ("running", START, None, AFTER, False),
    ("running", None, START, None, True),
    ("running", None, START, START, True),
    ("running", None, START, AFTER, False),
    ("running", AFTER, BEFORE, START, True),  # the marker counts, not the event
    ("running", BEFORE, AFTER, START, False),
    ("running", None, None, None, False),  # no start is known
    ("queued", START, START, None, False),  # it never said running
]


def test_reap_flags_a_start_without_a_later_heartbeat(tick: Tick, connection: Any) -> None:
    expected = {}
    for stage, marker, event, heartbeat, flag in FLAGS:
        for max_attempts in (1, 2):
            (job_id,) = rows.insert_leased(connection, max_attempts=max_attempts)
            age(connection, job_id, stage=stage, marker=marker, heartbeat=heartbeat)
            if event:
                stage_changed(connection, job_id, event, attempt=1)
                stage_changed(connection, job_id, "1 minute", attempt=1)  # only the first counts
            stage_changed(connection, job_id, "59 minutes", attempt=2)  # another attempt's
            expected[job_id] = [flag, flag]
    tick()
    found = {
        job_id: [
            p["started_without_renewal_heartbeat"] for _, _, p in told(connection, job_id)[-2:]
        ]
        for job_id in expected
    }
    assert found == expected


def age(connection: Any, job_id: str, **given: str | None) -> None:
    """Set the stage, and the attempt's marker and the last heartbeat to so long ago."""
    rows.fetch(
        connection,
        "WITH q AS (UPDATE job_queue SET stage = %(stage)s,"
        " last_heartbeat_at = date_trunc('hour', now()) - %(heartbeat)s::interval"
        " WHERE id = %(id)s)"
        "UPDATE job_attempts SET execution_started_persisted_at"
        " = date_trunc('hour', now()) - %(marker)s::interval WHERE job_id = %(id)s",
        given | {"id": job_id},
    )


def stage_changed(connection: Any, job_id: str, ago: str, *, attempt: int) -> None:
    rows.fetch(
        connection,
        "INSERT INTO job_events (job_id, run_number, attempt, event_type, stage, occurred_at)"
        " VALUES (%s, 1, %s, 'STAGE_CHANGED', 'running',"
        " date_trunc('hour', now()) - %s::interval)",
        (job_id, attempt, ago),
    )


def update(connection: Any, job_id: str, **columns: Any) -> None:
    names = ", ".join(f"{name} = %({name})s" for name in columns)
    rows.fetch(
        connection, f"UPDATE job_queue SET {names} WHERE id = %(id)s", columns | {"id": job_id}
    )
