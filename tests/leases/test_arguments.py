"""Bad input: one sentence that names the argument, its value and what is allowed. Nothing is sent.

The database of these tests does not exist, so whatever is not refused here raises a StoreError.
"""

import uuid

import pytest

from reaper import ConfigError, Database, Lease, StoreError, leases

NOWHERE = Database("host=/nowhere")

LEASE = Lease(
    job_id=str(uuid.UUID(int=7)),
    job_type="demo",
    run_number=1,
    attempt=1,
    max_attempts=3,
    worker_id="w1",
    organization_id=None,
    stage="queued",
    payload_json="{}",
    checkpoint_json=None,
    lease_seconds=60.0,
)

BAD_NAMES = [None, 7, b"x", "", " \t", "x" * 256, "a\nb", "a\0b", "\ud800", ["x"]]
BAD_SECONDS = [None, "60", True, 0, -1, 1e9, float("nan"), float("inf"), -float("inf"), 10**5000]
BAD_COUNTS = [None, "1", 1.0, True, 0, -1, 2**31, 10**5000]


def refused(call, what):
    with pytest.raises(ConfigError, match=rf"^{what}=.* is not allowed: it takes ") as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 250
    message.encode()


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:12])
def test_name_is_refused_when_it_is_blank_unprintable_or_too_long(name):
    refused(lambda: leases.claim(NOWHERE, name), "worker_id")
    refused(lambda: leases.define_job_type(NOWHERE, name), "job_type")
    refused(lambda: leases.enqueue(NOWHERE, name, {}), "job_type")
    refused(lambda: leases.claim(NOWHERE, "w1", job_types=[name]), "job_types")
    if name is not None:
        refused(
            lambda: leases.enqueue(NOWHERE, "demo", {}, idempotency_key=name), "idempotency_key"
        )
        refused(lambda: leases.progress(NOWHERE, LEASE, stage=name), "stage")
        refused(lambda: leases.fail(NOWHERE, LEASE, code=name), "code")


@pytest.mark.parametrize("seconds", BAD_SECONDS, ids=lambda value: type(value).__name__)
def test_seconds_are_refused_when_they_are_none_or_out_of_bounds(seconds):
    refused(lambda: leases.claim(NOWHERE, "w1", lease_seconds=seconds), "lease_seconds")
    if seconds is not None:
        refused(lambda: leases.heartbeat(NOWHERE, LEASE, lease_seconds=seconds), "lease_seconds")
    if seconds != 0:
        refused(lambda: leases.enqueue(NOWHERE, "demo", {}, delay_seconds=seconds), "delay_seconds")


@pytest.mark.parametrize("count", BAD_COUNTS, ids=lambda value: type(value).__name__)
def test_count_is_refused_when_it_is_no_whole_number_or_out_of_bounds(count):
    refused(lambda: leases.claim(NOWHERE, "w1", batch_size=count), "batch_size")
    refused(lambda: leases.define_job_type(NOWHERE, "x", max_attempts=count), "max_attempts")
    refused(lambda: leases.define_job_type(NOWHERE, "x", timeout_seconds=count), "timeout_seconds")
    if count is not None:
        refused(lambda: leases.enqueue(NOWHERE, "x", {}, max_attempts=count), "max_attempts")
    if count not in {None, 0, 2**31}:
        refused(lambda: leases.progress(NOWHERE, LEASE, done=count), "done")
        refused(lambda: leases.progress(NOWHERE, LEASE, total=count), "total")
        refused(lambda: leases.fail(NOWHERE, LEASE, retry_delay_ms=count), "retry_delay_ms")
    if count not in {None, 0, -1}:
        refused(lambda: leases.enqueue(NOWHERE, "x", {}, priority=count), "priority")


def test_claim_is_refused_when_it_asks_for_more_than_a_batch():
    refused(lambda: leases.claim(NOWHERE, "w1", batch_size=10_001), "batch_size")


@pytest.mark.parametrize("types", ["demo", 7, b"demo"], ids=repr)
def test_claim_is_refused_when_its_types_are_no_list(types):
    refused(lambda: leases.claim(NOWHERE, "w1", job_types=types), "job_types")


@pytest.mark.parametrize("organization", ["", "acme", 7, "123", b"x" * 16], ids=repr)
def test_enqueue_is_refused_when_the_organization_is_no_uuid(organization):
    refused(
        lambda: leases.enqueue(NOWHERE, "x", {}, organization_id=organization), "organization_id"
    )


@pytest.mark.parametrize("kind", ["LEASE_EXPIRED", "retryable", None, 7, []], ids=repr)
def test_fail_is_refused_when_its_kind_is_not_a_workers_to_report(kind):
    refused(lambda: leases.fail(NOWHERE, LEASE, kind=kind), "kind")


def test_progress_is_refused_when_there_is_nothing_or_nonsense_to_write():
    with pytest.raises(ConfigError, match="nothing to write"):
        leases.progress(NOWHERE, LEASE)
    refused(lambda: leases.progress(NOWHERE, LEASE, done=3, total=2), "done")
    with pytest.raises(ConfigError, match="the checkpoint is not JSON"):
        leases.progress(NOWHERE, LEASE, checkpoint=object())


def test_good_arguments_at_their_bounds_are_sent():
    calls = [
        lambda: leases.claim(NOWHERE, "x" * 255, batch_size=10_000, lease_seconds=0.001),
        lambda: leases.claim(NOWHERE, "日本 語", job_types=iter(["a"]), lease_seconds=366 * 86_400),
        lambda: leases.enqueue(NOWHERE, "x", {}, delay_seconds=0, priority=-(2**31) + 1),
        lambda: leases.progress(NOWHERE, LEASE, done=0, total=2**63 - 1),
        lambda: leases.fail(NOWHERE, LEASE, retry_delay_ms=0, message=ValueError("any object")),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="cannot be reached"):
            call()
