"""What these tests do over and over: a defined type, an enqueued and claimed job, an aged lease."""

import threading
from collections.abc import Callable
from typing import Any

from reaper import Database, Lease, leases
from tests.harness import rows
from tests.harness.waiting import eventually


def enqueue(database: Database, job_type: str = "demo", **options: Any) -> str:
    """Define the type (`type_attempts`: 3) and enqueue a job of it (`payload`: {})."""
    leases.define_job_type(database, job_type, max_attempts=options.pop("type_attempts", 3))
    return leases.enqueue(database, job_type, options.pop("payload", {}), **options)


def claimed(database: Database, worker_id: str = "w1", **options: Any) -> Lease:
    """Return the lease of a new job."""
    claim_options = {
        name: options.pop(name) for name in ("lease_seconds", "prestart") if name in options
    }
    job_id = enqueue(database, **options)
    (lease,) = leases.claim(database, worker_id, **claim_options)
    assert lease.job_id == job_id
    return lease


def expire(connection: Any, *job_ids: str, seconds: float = 1.0) -> None:
    """Age the leases: they ended `seconds` ago; negative is in the future."""
    rows.fetch(
        connection,
        "UPDATE job_queue SET lease_expires_at = clock_timestamp() - make_interval(secs => %s)"
        " WHERE id = ANY (%s::uuid[])",
        (seconds, list(job_ids)),
    )


def everything(connection: Any, job_id: str) -> tuple[Any, ...]:
    """All that is stored about a job, to compare before and after."""
    return (
        rows.job(connection, job_id),
        rows.attempts(connection, job_id),
        rows.events(connection, job_id),
        rows.dead_letter(connection, job_id),
        rows.hooks(connection, job_id),
    )


def event_types(connection: Any, job_id: str) -> list[str]:
    """The job's events in order."""
    return [event["event_type"] for event in rows.events(connection, job_id)]


def requeue(connection: Any, job_id: str) -> None:
    """Start a dead job over, as a person does it."""
    rows.fetch(
        connection,
        "UPDATE job_queue SET status = 'PENDING', run_number = run_number + 1, attempt = 0,"
        " next_run_at = now(), started_at = NULL, finished_at = NULL, status_reason = NULL,"
        " last_error_code = NULL, last_error_message = NULL WHERE id = %s",
        (job_id,),
    )


class Background:
    """A call in a thread; `result()` returns what it returned or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:  # noqa: BLE001 -- handed to the test
            self._error = error

    def result(self, seconds: float = 20.0) -> Any:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still running after {seconds} s"
        if self._error is not None:
            raise self._error
        return self._value


def wait_until_blocked(connection: Any, count: int = 1) -> None:
    """Return once `count` sessions of this database wait for a lock."""
    eventually(
        lambda: (
            rows.fetch(
                connection,
                "SELECT count(*) AS n FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )[0]["n"]
            >= count
        )
    )
