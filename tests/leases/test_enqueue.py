"""Enqueueing: defaults of the type, idempotency keys, the caller's own transaction, payloads."""

import json
import uuid

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor

from reaper import ConfigError, Database, ReaperError, StoreError, leases
from tests.harness import rows
from tests.leases import stand


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


KEPT = {
    "text": "a string",
    "list": [],
    "null": None,
    "boolean": True,
    "controls": {"": {"a": [1, 2.5, "\t\n\x1f\x7f"]}},
    "Unicode": {"naïve": "日本語 🦀 \u202e \ufffd \uffff"},
    "backslash": "no NUL: \\u0000 \\\\u0000",
    "placeholders": "%s %(x)s \"quoted\" 'too' $1 ; -- /* */",
    "25 digits": 10**24,
    "4299 digits": -(10**4299) + 1,
    "deep": nested(900),
    "1 MB": "x" * 1_000_000,
}

REFUSED = {
    ("set", "TypeError"): {"secret": {1, 2}},
    ("key", "TypeError"): {("secret",): 1},
    ("NaN", "ValueError"): {"secret": float("nan")},
    ("infinity", "ValueError"): {"secret": float("-inf")},
    ("NUL", "NUL character"): "secret \0",
    ("NUL in key", "NUL character"): {"secret\0": 1},
    ("NUL after backslash", "NUL character"): "secret \\\0",
    ("surrogate", "UnicodeEncodeError"): "secret \ud800",
    ("surrogate in key", "UnicodeEncodeError"): {"secret \udfff": 1},
    ("5001 digits", "ValueError"): 10**5000,
    ("too deep", "RecursionError"): nested(100_000),
}


def test_enqueue_takes_the_types_defaults_unless_told_otherwise(database, connect):
    leases.define_job_type(database, "mail", max_attempts=5, timeout_seconds=60, priority=7)
    plain = rows.job(connect(), leases.enqueue(database, "mail", {"to": "x"}))
    special = rows.job(
        connect(),
        leases.enqueue(
            database,
            "mail",
            None,
            organization_id=uuid.UUID(int=1),
            priority=-3,
            max_attempts=1,
            delay_seconds=3600,
            idempotency_key="k",
        ),
    )
    assert (plain["status"], plain["attempt"], plain["run_number"]) == ("PENDING", 0, 1)
    assert (plain["priority"], plain["max_attempts"], plain["timeout_seconds"]) == (7, 5, 60)
    assert plain["payload"] == {"to": "x"}
    assert plain["next_run_at"] == plain["created_at"]
    assert (special["priority"], special["max_attempts"], special["payload"]) == (-3, 1, None)
    assert special["organization_id"] == str(uuid.UUID(int=1))
    assert (special["next_run_at"] - special["created_at"]).total_seconds() == 3600
    assert stand.event_types(connect(), plain["id"]) == ["ENQUEUED"]


def test_define_job_type_changes_only_future_jobs_and_keeps_a_type_off(database, connect):
    old = stand.enqueue(database, "mail", type_attempts=2)
    rows.fetch(connect(), "UPDATE job_definitions SET is_enabled = false")
    leases.define_job_type(database, "mail", max_attempts=9)
    row = rows.fetch(connect(), "SELECT * FROM job_definitions")[0]
    leases.define_job_type(database, "mail", max_attempts=9)
    assert rows.fetch(connect(), "SELECT * FROM job_definitions")[0] == row
    assert (row["max_attempts"], row["is_enabled"]) == (9, False)
    assert rows.job(connect(), old)["max_attempts"] == 2


def test_enqueue_refuses_a_type_that_is_not_defined_or_switched_off(database, connect):
    with pytest.raises(ConfigError, match=r"'ghost' is not defined .*define_job_type"):
        leases.enqueue(database, "ghost", {})
    leases.define_job_type(database, "off")
    rows.fetch(connect(), "UPDATE job_definitions SET is_enabled = false")
    with pytest.raises(ConfigError, match="'off' is switched off"):
        leases.enqueue(database, "off", {})
    assert rows.fetch(connect(), "SELECT count(*) AS n FROM job_queue") == [{"n": 0}]


def test_enqueue_returns_the_first_job_when_its_key_is_taken(database, connect):
    first = stand.enqueue(database, idempotency_key="k")
    assert stand.enqueue(database, payload={"other": 1}, idempotency_key="k") == first
    organization = str(uuid.uuid4())
    other = stand.enqueue(database, idempotency_key="k", organization_id=organization)
    assert other != first
    assert stand.enqueue(database, "other", idempotency_key="k") not in {first, other}
    assert stand.event_types(connect(), first) == ["ENQUEUED"]
    assert rows.job(connect(), first)["payload"] == {}


def test_enqueue_finds_the_job_of_a_session_that_commits_the_key_meanwhile(dsn, connect):
    """Two at once with one key: one job, both get its id."""
    first, second = Database(dsn), connect()
    leases.define_job_type(first, "demo")
    second.autocommit = False
    job_id = leases.enqueue(Database.borrow(second), "demo", {}, idempotency_key="k")
    waiting = stand.Background(lambda: leases.enqueue(first, "demo", {}, idempotency_key="k"))
    stand.wait_until_blocked(connect())
    second.commit()
    assert waiting.result() == job_id
    first.close()


def test_enqueue_says_so_when_the_callers_snapshot_hides_the_key(database, connect):
    leases.define_job_type(database, "demo")
    old = connect()
    old.autocommit = False
    old.set_session(isolation_level="REPEATABLE READ")
    with old.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM job_queue")
    leases.enqueue(database, "demo", {}, idempotency_key="k")
    with pytest.raises(StoreError):
        leases.enqueue(Database.borrow(old), "demo", {}, idempotency_key="k")


@pytest.mark.parametrize("cursor_factory", [None, RealDictCursor])
def test_enqueue_commits_or_rolls_back_with_the_callers_transaction(dsn, connect, cursor_factory):
    """Whatever cursors the caller's connection makes by default."""
    mine = psycopg2.connect(dsn, cursor_factory=cursor_factory)
    borrowed = Database.borrow(mine)
    leases.define_job_type(borrowed, "demo")
    mine.commit()
    lost = leases.enqueue(borrowed, "demo", {})
    mine.rollback()
    with mine.cursor() as cursor:
        cursor.execute("CREATE TABLE mine (job_id text)")
    kept = leases.enqueue(borrowed, "demo", {})
    assert rows.fetch(connect(), "SELECT count(*) AS n FROM job_queue") == [{"n": 0}]
    mine.commit()
    mine.close()
    found = rows.fetch(connect(), "SELECT id FROM job_queue")
    assert [row["id"] for row in found] == [kept]
    assert lost != kept


def test_payload_arrives_at_the_worker_as_it_was_given(database):
    """Case 9, at the lease holder's side."""
    for what, payload in KEPT.items():
        stand.enqueue(database, payload=payload)
        (lease,) = leases.claim(database, "w1")
        assert lease.payload == payload, what


def test_lease_does_not_show_its_payload_when_printed(database):
    lease = stand.claimed(database, payload="secret")
    leases.progress(database, lease, checkpoint="secret")
    leases.fail(database, lease, retry_delay_ms=0)
    (again,) = leases.claim(database, "w1")
    assert (again.payload, again.checkpoint) == ("secret", "secret")
    assert "secret" not in repr(again)


@pytest.mark.parametrize(("what", "reason"), REFUSED)
def test_enqueue_refuses_what_is_not_json_without_showing_it(what, reason):
    """Before anything is sent: a refused statement would spoil the caller's transaction."""
    payload = REFUSED[what, reason]
    with pytest.raises(ConfigError, match=rf"the payload is not JSON .*\({reason}\)") as caught:
        leases.enqueue(Database("host=/nowhere"), "demo", payload)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_claim_survives_a_payload_that_python_cannot_decode(database, connect):
    """Case 9: another language's worker may have enqueued an integer of 5,000 digits."""
    job_id = stand.enqueue(database)
    digits = "9" * 5000
    rows.fetch(connect(), "UPDATE job_queue SET payload = %s::jsonb", (digits,))
    (lease,) = leases.claim(database, "w1")
    assert lease.payload_json == digits
    with pytest.raises(ReaperError, match=rf"payload of job {job_id} cannot be decoded .*_json"):
        _ = lease.payload
    leases.fail(database, lease, kind="TERMINAL")


def test_payload_written_as_1e400_arrives_unrounded(database, connect):
    stand.enqueue(database)
    rows.fetch(connect(), "UPDATE job_queue SET payload = %s::jsonb", ("1e400",))
    (lease,) = leases.claim(database, "w1")
    assert lease.payload == 10**400
    assert json.loads(lease.payload_json) == 10**400


def test_enqueue_is_not_repeated_by_itself_when_its_connection_broke(database, connect):
    """Without a key a second sending might be a second job; the caller decides."""
    leases.define_job_type(database, "demo")
    rows.fetch(connect(), "SELECT pg_terminate_backend(%s)", (database.backend_pid,))
    with pytest.raises(StoreError):
        leases.enqueue(database, "demo", {})
    assert leases.enqueue(database, "demo", {})
    assert rows.fetch(connect(), "SELECT count(*) AS n FROM job_queue") == [{"n": 1}]


def test_enqueue_with_a_key_goes_on_when_its_connection_broke(database, connect):
    leases.define_job_type(database, "demo")
    rows.fetch(connect(), "SELECT pg_terminate_backend(%s)", (database.backend_pid,))
    assert leases.enqueue(database, "demo", {}, idempotency_key="k")
    assert rows.fetch(connect(), "SELECT count(*) AS n FROM job_queue") == [{"n": 1}]
