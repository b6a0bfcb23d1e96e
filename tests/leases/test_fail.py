"""Failing: retried with backoff, or dead with its dead letter and its owed hook at once."""

import pytest

from reaper import ConfigError, JobDeadLetterReason, JobFailureKind, leases
from reaper.reap import redeliver
from reaper.store import ledger
from tests.harness import rows
from tests.leases import stand


def test_fail_puts_the_job_back_when_attempts_are_left(database, connect):
    connection = connect()
    lease = stand.claimed(database)
    leases.progress(database, lease, stage="half", checkpoint=[7])
    died = leases.fail(database, lease, code="mail.refused", message="no", retry_delay_ms=1500)
    assert died is False
    job = rows.job(connection, lease.job_id)
    (attempt,) = rows.attempts(connection, lease.job_id)
    failed, retry = rows.events(connection, lease.job_id)[-2:]
    assert (job["status"], job["attempt"], job["stage"]) == ("PENDING", 1, "half")
    assert (job["worker_id"], job["lease_expires_at"], job["finished_at"]) == (None,) * 3
    assert (job["status_reason"], job["last_error_code"]) == ("RETRYABLE", "mail.refused")
    assert (job["last_error_message"], job["checkpoint"]) == ("no", [7])
    assert (job["next_run_at"] - attempt["finished_at"]).total_seconds() == 1.5
    assert (attempt["outcome"], attempt["retry_delay_ms"]) == ("RETRYABLE", 1500)
    assert (attempt["error_code"], attempt["error_message"]) == ("mail.refused", "no")
    assert (failed["event_type"], retry["event_type"]) == ("FAILED", "RETRY_SCHEDULED")
    assert failed["payload"] == {
        "kind": "RETRYABLE", "error_code": "mail.refused", "error_message": "no",
    }  # fmt: skip
    assert retry["payload"]["retry_delay_ms"] == 1500
    assert rows.dead_letter(connection, lease.job_id) is None
    assert rows.hooks(connection) == []


def test_fail_waits_longer_after_each_attempt_up_to_an_hour(database, connect):
    stand.enqueue(database, type_attempts=50)
    delays = {}
    for attempt in (1, 2, 3, 10, 11, 40):
        rows.fetch(
            connect(), "UPDATE job_queue SET next_run_at = now(), attempt = %s", (attempt - 1,)
        )
        (lease,) = leases.claim(database, "w1")
        leases.fail(database, lease)
        delays[attempt] = rows.attempts(connect(), lease.job_id)[-1]["retry_delay_ms"]
    assert delays == {
        1: 5_000, 2: 10_000, 3: 20_000, 10: 2_560_000, 11: 3_600_000, 40: 3_600_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "attempts", "reason"),
    [
        ("RETRYABLE", 1, "ATTEMPTS_EXHAUSTED"),
        ("PANICKED", 1, "ATTEMPTS_EXHAUSTED"),
        ("TIMEOUT", 1, "ATTEMPTS_EXHAUSTED"),
        ("TERMINAL", 1, "TERMINAL_FAILURE"),
        ("TERMINAL", 9, "TERMINAL_FAILURE"),
    ],
)
def test_fail_kills_the_job_and_owes_its_hook_in_one_transaction(
    database, connect, kind, attempts, reason
):
    connection = connect()
    organization = "11111111-2222-3333-4444-555555555555"
    lease = stand.claimed(
        database, payload={"n": 10**24}, type_attempts=attempts, organization_id=organization
    )
    leases.progress(database, lease, checkpoint={"at": 3})
    assert leases.fail(database, lease, kind=JobFailureKind(kind), code="c", message="m") is True
    job = rows.job(connection, lease.job_id)
    (attempt,) = rows.attempts(connection, lease.job_id)
    letter = rows.dead_letter(connection, lease.job_id)
    (hook,) = rows.hooks(connection)
    died_at = job["finished_at"]
    assert (job["status"], job["status_reason"], job["worker_id"]) == (
        "DEAD_LETTERED",
        reason,
        None,
    )
    assert (attempt["outcome"], attempt["retry_delay_ms"]) == (kind, None)
    assert died_at == attempt["finished_at"] == letter["failed_at"] == hook["due_at"]
    assert (letter["error_code"], letter["error_message"]) == ("c", "m")
    assert (letter["payload_snapshot"], letter["checkpoint_snapshot"]) == (
        {"n": 10**24}, {"at": 3},
    )  # fmt: skip
    assert (hook["job_id"], hook["organization_id"]) == (lease.job_id, organization)
    assert (hook["run_number"], hook["attempt"], hook["max_attempts"]) == (1, 1, attempts)
    assert (hook["reason"], hook["failure_kind"]) == (reason, kind)
    assert (hook["error_code"], hook["error_message"]) == ("c", "m")
    assert (hook["lease_owner"], hook["state"], hook["tries"]) == ("w1", "pending", 0)
    assert stand.event_types(connection, lease.job_id)[-2:] == ["FAILED", "DEAD_LETTERED"]


def test_hook_of_a_failed_job_rings_with_the_next_redelivery(database, settings):
    """`leases.fail` rings no bell itself; the hook sees the job's own error."""
    rung = []
    lease = stand.claimed(database, payload=[1], type_attempts=1)
    leases.fail(database, lease, kind=JobFailureKind.PANICKED, code="c", message="m")
    redeliver(database, settings(), lambda hooks: rung.extend(hooks) or True, lambda: 0)
    (hook,) = rung
    claimed = ledger.claim_hook(
        database, hook_id=hook.hook_id, try_number=1, worker="h", lease_seconds=9, max_tries={}
    )
    assert claimed.context.job_id == lease.job_id
    assert claimed.context.lease_owner == "w1"
    assert claimed.payload_json == "[1]"
    assert claimed.dead_letter.reason is JobDeadLetterReason.ATTEMPTS_EXHAUSTED
    assert claimed.dead_letter.failure.kind is JobFailureKind.PANICKED
    assert claimed.dead_letter.failure.message == "m"


def test_job_that_dies_again_in_its_second_run_owes_a_second_hook(database, connect):
    """Case 11: both deaths can be read."""
    connection = connect()
    first = stand.claimed(database, type_attempts=1)
    leases.fail(database, first, code="one")
    stand.requeue(connection, first.job_id)
    (second,) = leases.claim(database, "w2")
    assert (second.run_number, second.attempt) == (2, 1)
    leases.fail(database, second, kind=JobFailureKind.TERMINAL, code="two")
    found = [(h["run_number"], h["error_code"]) for h in rows.hooks(connection)]
    assert found == [(1, "one"), (2, "two")]
    letter = rows.dead_letter(connection, first.job_id)
    assert (letter["run_number"], letter["error_code"]) == (2, "two")
    assert [a["run_number"] for a in rows.attempts(connection, first.job_id)] == [1, 2]


def test_fail_keeps_what_it_can_of_any_message(database, connect):
    """A worker reports whatever its exception said; that must not keep the failure unwritten."""
    lease = stand.claimed(database, type_attempts=1)
    leases.fail(database, lease, message="a\0b\ud800 %s '\n" + "é" * 1_000_000)
    (hook,) = rows.hooks(connect())
    kept = hook["error_message"]
    assert kept.startswith("a\N{REPLACEMENT CHARACTER}b? %s '\né")
    assert (len(kept), kept[-4:]) == (2003, "é...")
    assert rows.dead_letter(connect(), lease.job_id)["error_message"] == kept


def test_fail_may_say_nothing_about_why(database, connect):
    lease = stand.claimed(database, type_attempts=1)
    leases.fail(database, lease)
    (hook,) = rows.hooks(connect())
    assert (hook["error_code"], hook["error_message"]) == (None, None)


def test_fail_does_not_let_a_worker_speak_for_the_reap(database):
    lease = stand.claimed(database)
    with pytest.raises(ConfigError, match="it takes RETRYABLE, TERMINAL, PANICKED, TIMEOUT"):
        leases.fail(database, lease, kind=JobFailureKind.LEASE_EXPIRED)
    leases.succeed(database, lease)
