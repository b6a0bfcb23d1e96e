"""The reap against a model of it in plain Python: random rows in, every table compared afterwards.

Each example is one transaction that is rolled back, so that `now()` is known and nothing is left.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reaper.jobs import LEASE_EXPIRED_CODE, LEASE_EXPIRED_MESSAGE, BatchResult
from reaper.store import Database, reaping
from tests.harness import rows
from tests.reap.conftest import EACH_SERVER

pytestmark = EACH_SERVER

Tables = dict[str, list[dict[str, Any]]]

TABLES = {
    "job_queue": "id",
    "job_attempts": "job_id, run_number, attempt",
    "job_events": "id",
    "job_dead_letters": "job_id",
    "reaper.terminal_hooks": "hook_id",
}

DELAY_MS = 1234
UNHEARD = timedelta(seconds=reaping.UNHEARD_SECONDS)

INSERT = """
WITH given AS (
    SELECT g.*
    FROM jsonb_to_recordset(%(jobs)s::jsonb) AS g (
        id uuid, organization_id uuid, job_type text, payload jsonb, status job_status,
        run_number integer, attempt integer, max_attempts integer, expires double precision,
        heartbeat double precision, started double precision, marker double precision,
        origin text, stage text, checkpoint jsonb, workflow_step_id uuid, status_reason text,
        said double precision, died boolean
    )
),
types AS (
    INSERT INTO job_definitions (job_type) SELECT DISTINCT job_type FROM given
    ON CONFLICT DO NOTHING
),
queued AS (
    INSERT INTO job_queue (
        id, organization_id, job_type, payload, status, run_number, attempt, max_attempts,
        next_run_at, lease_expires_at, last_heartbeat_at, started_at, worker_id, stage, checkpoint,
        workflow_step_id, status_reason, last_error_code, updated_at
    )
    SELECT
        id, organization_id, job_type, coalesce(payload, 'null'), status, run_number, attempt,
        max_attempts, now() - interval '1 day', now() + make_interval(secs => expires),
        now() - make_interval(secs => heartbeat), now() - make_interval(secs => started),
        CASE status WHEN 'LEASED' THEN 'w1' END, stage, checkpoint, workflow_step_id,
        status_reason, status_reason, now() - interval '1 day'
    FROM given
),
tried AS (
    INSERT INTO job_attempts (
        job_id, run_number, attempt, worker_id, leased_at, started_at, claim_origin,
        execution_started_persisted_at
    )
    SELECT
        id, run_number, attempt, 'w1', now() - interval '1 day', now() - interval '1 day', origin,
        now() - make_interval(secs => marker)
    FROM given
    WHERE origin IS NOT NULL
),
dead AS (
    INSERT INTO job_dead_letters (
        job_id, job_type, run_number, attempt, payload_snapshot, failed_at, created_at
    )
    SELECT id, job_type, 1, 1, '"old"', now() - interval '1 day', now() - interval '1 day'
    FROM given
    WHERE died
)
INSERT INTO job_events (job_id, run_number, attempt, event_type, stage, occurred_at)
SELECT id, run_number, attempt, 'STAGE_CHANGED', 'running', now() - make_interval(secs => said)
FROM given
WHERE said IS NOT NULL
"""

seconds_ago = st.none() | st.integers(0, 4)

job = st.fixed_dictionaries(
    {
        "organization_id": st.none() | st.uuids().map(str),
        "job_type": st.sampled_from(["a", "b", "\t c\n", "d" * 300]),
        "payload": st.sampled_from([None, [], {}, "a string", 7, {"n": 10**25}, {"a": {"b": [1]}}]),
        "status": st.sampled_from(["LEASED"] * 6 + ["PENDING", "SUCCEEDED", "CANCELED"]),
        "run_number": st.integers(1, 3),
        "attempt": st.integers(1, 4),
        "max_attempts": st.integers(1, 4),
        "heartbeat": seconds_ago,
        "started": seconds_ago,
        "marker": seconds_ago,
        "origin": st.sampled_from([None, "DIRECT", "WORKER_PRESTART", "WORKER_PRESTART"]),
        "stage": st.sampled_from(["queued", "running", "running", "copying"]),
        "checkpoint": st.none() | st.sampled_from([{}, {"at": 3}]),
        "workflow_step_id": st.sampled_from([None] * 8 + ["6f9619ff-8b86-4d01-b42d-00c04fc964ff"]),
        "status_reason": st.none() | st.just("old"),
        "said": seconds_ago,
        "died": st.booleans(),
    }
)
expiries = st.lists(  # seconds from now, all different: 0 is exactly now
    st.integers(-30, 10).map(lambda n: n / 10) | st.just(-1e-6), unique=True, max_size=40
)


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Iterator[Any]:
    connection = connect()
    connection.autocommit = False
    yield connection
    connection.rollback()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), expires=expiries, batch_size=st.integers(1, 30))
def test_reap_does_what_the_model_does(
    connection: Any, data: st.DataObject, expires: list[float], batch_size: int
) -> None:
    """Whatever the rows, a reap writes what reap-spec says, and nothing else."""
    jobs = [
        data.draw(job) | {"expires": expiry, "id": str(uuid5(NAMESPACE_OID, str(number)))}
        for number, expiry in enumerate(expires)
    ]
    connection.rollback()
    rows.fetch(connection, INSERT, {"jobs": json.dumps(jobs)})
    now = rows.fetch(connection, "SELECT now() AS now")[0]["now"]
    before = read(connection)
    batch = reaping.reap_batch(
        Database.borrow(connection), batch_size=batch_size, retry_delay_ms=DELAY_MS
    )
    model = Model(before, now)
    picked = model.reap(batch_size)
    after = read(connection)
    for table, key in (("job_queue", "id"), ("job_dead_letters", "job_id")):
        assert by(after, table, key) == {row[key]: row for row in model.tables[table]}
    assert after["job_attempts"] == model.tables["job_attempts"]
    assert without(after, "job_events", "id") == model.tables["job_events"]
    assert plain_hooks(after) == model.tables["reaper.terminal_hooks"]
    check_result(batch, model, picked, after, batch_size)


def check_result(
    batch: BatchResult, model: "Model", picked: int, after: Tables, batch_size: int
) -> None:
    assert (batch.picked, batch.counts) == (picked, dict(model.counts))
    assert batch.drained == (picked < batch_size)
    assert [
        (record.hook_id, record.job_id, record.job_type, record.organization_id, record.run_number)
        for record in batch.terminal
    ] == [
        (row["hook_id"], row["job_id"], row["job_type"], row["organization_id"], row["run_number"])
        for row in after["reaper.terminal_hooks"]
    ]


class Model:
    """The reap in plain Python, on tables that are lists of dicts."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self.tables = {name: [dict(row) for row in found] for name, found in tables.items()}
        self.tables["job_events"] = without(tables, "job_events", "id")
        self.now = now
        self.counts: Counter[tuple[str, str]] = Counter()

    def reap(self, batch_size: int) -> int:
        expired = [
            row
            for row in self.tables["job_queue"]
            if row["status"] == "LEASED"
            and row["lease_expires_at"] < self.now
            and row["workflow_step_id"] is None
        ]
        expired.sort(key=lambda row: row["lease_expires_at"])
        for row in expired[:batch_size]:
            self.take_back(row)
        return len(expired[:batch_size])

    def take_back(self, row: dict[str, Any]) -> None:
        tried = self.attempt_of(row)
        silent = self.is_silent(row, tried)
        owner = row["worker_id"]
        row |= {"lease_expires_at": None, "last_heartbeat_at": None, "worker_id": None}
        row |= {"updated_at": self.now}
        if tried and is_unstarted(tried):
            self.release(row, tried)
            return
        row |= {"status_reason": "LEASE_EXPIRED", "last_error_code": LEASE_EXPIRED_CODE}
        row |= {"last_error_message": LEASE_EXPIRED_MESSAGE}
        error = {"error_code": LEASE_EXPIRED_CODE, "error_message": LEASE_EXPIRED_MESSAGE}
        (tried or {}).update(error | {"finished_at": self.now, "outcome": "LEASE_EXPIRED"})
        flag = {"started_without_renewal_heartbeat": silent}
        self.log(row, "FAILED", {"kind": "LEASE_EXPIRED"} | error | flag)
        if row["attempt"] >= row["max_attempts"]:
            self.kill(row, owner, error, flag)
        else:
            self.retry(row, tried, flag)

    def release(self, row: dict[str, Any], tried: dict[str, Any]) -> None:
        self.log(row, "REQUEUED", {"reason": "LEASE_EXPIRED_BEFORE_RUNNING_PERSISTED"})
        self.tables["job_attempts"].remove(tried)
        if row["attempt"] == 1:
            row["started_at"] = None
        row |= {"status": "PENDING", "attempt": row["attempt"] - 1, "next_run_at": self.now}
        row |= {"status_reason": None, "last_error_code": None, "last_error_message": None}
        self.counts[row["job_type"], "released"] += 1

    def retry(
        self, row: dict[str, Any], tried: dict[str, Any] | None, flag: dict[str, Any]
    ) -> None:
        again = self.now + timedelta(milliseconds=DELAY_MS)
        row |= {"status": "PENDING", "next_run_at": again}
        (tried or {}).update(retry_delay_ms=DELAY_MS)
        details = {"retry_delay_ms": DELAY_MS, "next_run_at": again}
        self.log(row, "RETRY_SCHEDULED", {"kind": "LEASE_EXPIRED"} | details | flag)
        self.counts[row["job_type"], "retried"] += 1

    def kill(
        self, row: dict[str, Any], owner: str, error: dict[str, Any], flag: dict[str, Any]
    ) -> None:
        row |= {"status": "DEAD_LETTERED", "finished_at": self.now}
        code = {"error_code": LEASE_EXPIRED_CODE}
        self.log(row, "DEAD_LETTERED", {"kind": "LEASE_EXPIRED"} | code | flag)
        fence = {"run_number": row["run_number"], "attempt": row["attempt"]}
        whose = {"job_type": row["job_type"], "organization_id": row["organization_id"]}
        new = {"job_id": row["id"], **whose, "created_at": self.now}
        letters = self.tables["job_dead_letters"]
        letter = next((d for d in letters if d["job_id"] == row["id"]), new)
        if letter is new:
            letters.append(new)
        letter |= fence | error | {"failed_at": self.now}
        letter |= {"payload_snapshot": row["payload"], "checkpoint_snapshot": row["checkpoint"]}
        hook = {"job_id": row["id"], **fence, **whose, **error, "payload": row["payload"]}
        hook |= {"max_attempts": row["max_attempts"], "lease_owner": owner, "state": "pending"}
        hook |= {"reason": "LEASE_EXPIRED", "failure_kind": "LEASE_EXPIRED"}
        self.tables["reaper.terminal_hooks"].append(hook | {"due_at": self.now + UNHEARD})
        self.counts[row["job_type"], "dead_lettered"] += 1

    def attempt_of(self, row: dict[str, Any]) -> dict[str, Any] | None:
        key = (row["id"], row["run_number"], row["attempt"])
        found = self.tables["job_attempts"]
        return next((a for a in found if (a["job_id"], a["run_number"], a["attempt"]) == key), None)

    def is_silent(self, row: dict[str, Any], tried: dict[str, Any] | None) -> bool:
        said = (
            event["occurred_at"]
            for event in self.tables["job_events"]
            if event["job_id"] == row["id"] and event["event_type"] == "STAGE_CHANGED"
        )
        start = (tried or {}).get("execution_started_persisted_at") or next(said, None)
        if row["stage"] != "running" or start is None:
            return False
        return row["last_heartbeat_at"] is None or row["last_heartbeat_at"] <= start

    def log(self, row: dict[str, Any], event_type: str, payload: dict[str, Any]) -> None:
        self.tables["job_events"].append(
            {
                "job_id": row["id"],
                "run_number": row["run_number"],
                "attempt": row["attempt"],
                "event_type": event_type,
                "stage": None,
                "progress_done": None,
                "progress_total": None,
                "payload": payload,
                "occurred_at": self.now,
            }
        )


def is_unstarted(tried: dict[str, Any]) -> bool:
    origin, start = tried["claim_origin"], tried["execution_started_persisted_at"]
    return bool(origin == "WORKER_PRESTART" and start is None)


def read(connection: Any) -> Tables:
    found = {
        table: rows.fetch(connection, f"SELECT * FROM {table} ORDER BY {order}")
        for table, order in TABLES.items()
    }
    for event in found["job_events"]:
        if isinstance(event["payload"].get("next_run_at"), str):
            event["payload"]["next_run_at"] = datetime.fromisoformat(
                event["payload"]["next_run_at"]
            )
    return found


def by(tables: Tables, table: str, key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in tables[table]}


def without(tables: Tables, table: str, column: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != column} for row in tables[table]]


MODELLED = [
    "job_id",
    "run_number",
    "attempt",
    "job_type",
    "organization_id",
    "max_attempts",
    "lease_owner",
    "payload",
    "reason",
    "failure_kind",
    "error_code",
    "error_message",
    "state",
    "due_at",
]


def plain_hooks(tables: Tables) -> list[dict[str, Any]]:
    return [{name: row[name] for name in MODELLED} for row in tables["reaper.terminal_hooks"]]
