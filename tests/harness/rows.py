"""Rows of the job tables and the ledger: written as a dead worker leaves them, read as they are."""

from collections import Counter
from typing import Any

from psycopg2.extras import RealDictCursor

_LEASE = """
WITH type AS (
    INSERT INTO job_definitions (job_type) VALUES (%(job_type)s) ON CONFLICT DO NOTHING
),
queued AS (
    INSERT INTO job_queue (
        id, job_type, organization_id, payload, status, run_number, attempt, max_attempts,
        next_run_at, lease_expires_at, last_heartbeat_at, worker_id, started_at, stage
    )
    SELECT
        gen_random_uuid(), %(job_type)s, %(organization_id)s::uuid, %(payload)s::jsonb, 'LEASED',
        %(run_number)s, %(attempt)s, %(max_attempts)s, now() - interval '1 hour',
        now() - make_interval(secs => %(expired_seconds)s + n * 1e-6),
        now() - interval '50 minutes', %(worker_id)s, now() - interval '1 hour', %(stage)s
    FROM generate_series(%(count)s, 1, -1) AS n
    RETURNING id, lease_expires_at
),
tried AS (
    INSERT INTO job_attempts (
        job_id, run_number, attempt, worker_id, leased_at, started_at, claim_origin,
        execution_started_persisted_at
    )
    SELECT
        id, %(run_number)s, %(attempt)s, %(worker_id)s, now() - interval '1 hour',
        now() - interval '1 hour', %(claim_origin)s,
        CASE WHEN %(started)s THEN now() - interval '1 hour' END
    FROM queued
)
SELECT id::text FROM queued ORDER BY lease_expires_at
"""


def insert_leased(
    connection: Any,
    count: int = 1,
    *,
    job_type: str = "demo",
    attempt: int = 1,
    max_attempts: int = 1,
    expired_seconds: float = 60.0,
    payload: str = "{}",
    prestart: bool = False,
    started: bool = False,
    worker_id: str = "w1",
    run_number: int = 1,
    organization_id: str | None = None,
) -> list[str]:
    """Insert leased jobs with their attempt rows; return their ids, oldest lease first."""
    parameters = {
        "count": count,
        "job_type": job_type,
        "attempt": attempt,
        "max_attempts": max_attempts,
        "expired_seconds": expired_seconds,
        "payload": payload,
        "claim_origin": "WORKER_PRESTART" if prestart else "DIRECT",
        "started": started,
        "stage": "running" if started else "queued",
        "worker_id": worker_id,
        "run_number": run_number,
        "organization_id": organization_id,
    }
    return [row["id"] for row in fetch(connection, _LEASE, parameters)]


def insert_hook(
    connection: Any,
    *,
    job_type: str = "demo",
    payload: str = "{}",
    state: str = "pending",
    due_seconds: float = 0.0,
    **columns: Any,
) -> int:
    """Insert a ledger row of a job that does not exist; return its hook_id."""
    values = {
        "job_id": "00000000-0000-0000-0000-000000000000",
        "run_number": 1,
        "attempt": 1,
        "reason": "LEASE_EXPIRED",
        "failure_kind": "LEASE_EXPIRED",
        "error_code": "job.lease_expired",
        "error_message": "Job lease expired before completion.",
        "job_type": job_type,
        "payload": payload,
        "state": state,
    } | columns
    names = ", ".join(values)
    places = ", ".join(f"%({name})s" for name in values)
    text = (
        f"INSERT INTO reaper.terminal_hooks ({names}, due_at) VALUES ({places},"
        " now() + make_interval(secs => %(due_seconds)s)) RETURNING hook_id"
    )
    return int(fetch(connection, text, values | {"due_seconds": due_seconds})[0]["hook_id"])


def job(connection: Any, job_id: str) -> dict[str, Any]:
    """Return the job's row."""
    return fetch(connection, "SELECT * FROM job_queue WHERE id = %s", (job_id,))[0]


def attempts(connection: Any, job_id: str) -> list[dict[str, Any]]:
    """Return the job's attempt rows in order."""
    text = "SELECT * FROM job_attempts WHERE job_id = %s ORDER BY run_number, attempt"
    return fetch(connection, text, (job_id,))


def events(connection: Any, job_id: str) -> list[dict[str, Any]]:
    """Return the job's events in the order they were written."""
    return fetch(connection, "SELECT * FROM job_events WHERE job_id = %s ORDER BY id", (job_id,))


def dead_letter(connection: Any, job_id: str) -> dict[str, Any] | None:
    """Return the job's dead letter, if it has one."""
    found = fetch(connection, "SELECT * FROM job_dead_letters WHERE job_id = %s", (job_id,))
    return found[0] if found else None


def hooks(connection: Any, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return the ledger rows, all or one job's, oldest first."""
    text = (
        "SELECT * FROM reaper.terminal_hooks WHERE %(job_id)s::text IS NULL OR job_id = %(job_id)s"
        " ORDER BY hook_id"
    )
    return fetch(connection, text, {"job_id": job_id})


def hook_states(connection: Any) -> Counter[str]:
    """Return how many ledger rows are in each state."""
    text = "SELECT state, count(*) AS n FROM reaper.terminal_hooks GROUP BY state"
    return Counter({row["state"]: row["n"] for row in fetch(connection, text)})


def effects(connection: Any, what: str | None = None) -> list[dict[str, Any]]:
    """Return what the handlers of tests.harness.handlers did, in order."""
    text = "SELECT * FROM effects WHERE %(what)s::text IS NULL OR what = %(what)s ORDER BY id"
    return fetch(connection, text, {"what": what})


def fetch(connection: Any, text: str, parameters: Any = None) -> list[dict[str, Any]]:
    """Run a statement and return its rows as dicts."""
    with connection.cursor(cursor_factory=RealDictCursor) as cursor:
        cursor.execute(text, parameters)
        return [dict(row) for row in cursor.fetchall()] if cursor.description else []
