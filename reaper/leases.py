"""The lease holder's side: enqueue, claim, heartbeat, succeed, fail. Must not import Celery.

A worker claims jobs, extends each lease while it works, and ends it with `succeed` or `fail`. Every
write is fenced: once the lease expired, was reaped or has ended it raises `LeaseLost` and changes
nothing. Time is the database's.

Every function takes a `Database`: `connect()` makes one; `Database.borrow(connection)` wraps a
psycopg2 connection of yours, so that a job is enqueued, or ends, in your own transaction. A claim
or a heartbeat does not belong there: nobody sees it before you commit.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from reaper import arguments
from reaper.config import Settings
from reaper.errors import ConfigError, LeaseLost, StoreError
from reaper.jobs import JobFailureKind
from reaper.store import Database, leasing, schema

Lease = leasing.Lease

LEASE_SECONDS = 60.0
"""How long a claim keeps a job: four intervals of the reap, so a death costs about a minute."""

RETRY_FIRST_MS = 5_000
RETRY_MAX_MS = 3_600_000
"""Before a failed job's second attempt; doubles with each attempt up to an hour."""

FAILURE_KINDS = tuple(kind for kind in JobFailureKind if kind is not JobFailureKind.LEASE_EXPIRED)
"""What a lease holder may report; expired leases are the reap's to write."""

_NOT_DEFINED = {
    None: "not defined in this database: define it with reaper.leases.define_job_type",
    False: "switched off: set is_enabled in job_definitions to enqueue such jobs",
}


def connect(url: str | None = None) -> Database:
    """Return a connection to the database of the jobs, checked.

    Use one per thread. A forked child opens its own by itself; a broken one is renewed.

    Args:
        url: a PostgreSQL URL or libpq DSN; None takes REAPER_DATABASE_URL.

    Raises:
        ConfigError: no URL, or one that libpq cannot read.
        StoreError: PostgreSQL cannot be reached.
        SchemaError: the schema `reaper` is missing or of another version; names the command to run.
    """
    database = Database(
        Settings.load().require_database_url() if url is None else url,
        application_name="reaper lease holder",
    )
    schema.check(database)
    return database


def define_job_type(
    database: Database,
    job_type: str,
    *,
    max_attempts: int = 8,
    timeout_seconds: int = 900,
    priority: int = 100,
) -> None:
    """Define a job type, or change the defaults of its future jobs. Safe to repeat.

    `max_attempts` counts the claims of one run, `timeout_seconds` is what an attempt should take at
    most (for workers to know), and a higher `priority` is claimed first.

    Raises:
        ConfigError: an argument is out of range.
        StoreError: PostgreSQL refused or cannot be reached.
    """
    leasing.define_job_type(
        database,
        job_type=arguments.name("job_type", job_type),
        max_attempts=arguments.whole("max_attempts", max_attempts, 1),
        timeout_seconds=arguments.whole("timeout_seconds", timeout_seconds, 1),
        priority=arguments.whole("priority", priority, -arguments.INT4_MAX),
    )


def enqueue(  # noqa: PLR0913 -- two say what, the others are keyword-only
    database: Database,
    job_type: str,
    payload: Any,
    *,
    organization_id: str | uuid.UUID | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    delay_seconds: float = 0.0,
    idempotency_key: str | None = None,
) -> str:
    """Enqueue one job and return its id.

    Safe to repeat only with an idempotency key: the same key within type and organization returns
    the job it made first, whatever has become of it since.

    Args:
        database: where the jobs are.
        job_type: a type that was defined.
        payload: anything JSON can hold.
        organization_id: a UUID, or None.
        priority: higher is claimed first; None takes the type's.
        max_attempts: None takes the type's.
        delay_seconds: until the job may be claimed, seconds.
        idempotency_key: up to 255 characters, or None.

    Raises:
        ConfigError: the type is not defined or is switched off, or an argument is out of range.
        StoreError: PostgreSQL refused or cannot be reached; without a key the job may be there.
    """
    job = leasing.NewJob(
        job_type=arguments.name("job_type", job_type),
        payload=arguments.json_text("payload", payload),
        organization_id=arguments.optional(arguments.uuid_text, "organization_id", organization_id),
        priority=arguments.optional(arguments.whole, "priority", priority, -arguments.INT4_MAX),
        max_attempts=arguments.optional(arguments.whole, "max_attempts", max_attempts, 1),
        delay_seconds=arguments.seconds("delay_seconds", delay_seconds, zero=True),
        idempotency_key=arguments.optional(arguments.name, "idempotency_key", idempotency_key),
    )
    for _ in range(2):  # the second run sees a key that was committed while the first waited
        job_id, is_enabled = leasing.enqueue_job(database, job)
        if job_id is not None:
            return job_id
        if not is_enabled:
            raise ConfigError(f"job_type={job_type!r} is {_NOT_DEFINED[is_enabled]}")
    raise StoreError(
        f"the job {job_type!r} was enqueued under this idempotency key by a transaction that yours "
        "cannot see; enqueue it again in a new transaction"
    )


def claim(  # noqa: PLR0913 -- keyword-only but two
    database: Database,
    worker_id: str,
    *,
    lease_seconds: float = LEASE_SECONDS,
    batch_size: int = 1,
    job_types: Sequence[str] | None = None,
    prestart: bool = False,
) -> list[Lease]:
    """Claim up to `batch_size` jobs that may run; return their leases, the most urgent first.

    Any number of workers may claim at once; no job goes to two. What was claimed by a call whose
    answer got lost is reaped when its lease expires.

    Args:
        database: where the jobs are.
        worker_id: who claims: unique per worker, seen by handlers as `lease_owner`.
        lease_seconds: until the leases expire, seconds, unless a heartbeat extends them.
        batch_size: 1 to 10000.
        job_types: only these; None is all.
        prestart: claim ahead of the work: a job whose lease expires before `start` is released
            and loses no attempt.

    Raises:
        ConfigError: an argument is out of range.
        StoreError: PostgreSQL refused or cannot be reached.
    """
    return leasing.claim_jobs(
        database,
        worker_id=arguments.name("worker_id", worker_id),
        lease_seconds=arguments.seconds("lease_seconds", lease_seconds),
        batch_size=arguments.whole("batch_size", batch_size, 1, arguments.BATCH_LIMIT),
        job_types=arguments.optional(arguments.names, "job_types", job_types),
        prestart=bool(prestart),
    )


def heartbeat(database: Database, lease: Lease, *, lease_seconds: float | None = None) -> None:
    """Extend the lease: it now ends `lease_seconds` (None: those of the claim) from this moment.

    Send one every third of the lease, so that one may fail. Safe to repeat.

    Raises:
        LeaseLost: it expired, also while this waited for a lock, or was reaped: stop the work.
        ConfigError: `lease_seconds` is out of range.
        StoreError: PostgreSQL refused or cannot be reached; try again.
    """
    seconds = lease.lease_seconds if lease_seconds is None else lease_seconds
    seconds = arguments.seconds("lease_seconds", seconds)
    _held(lease, leasing.heartbeat_lease(database, lease, lease_seconds=seconds))


def start(database: Database, lease: Lease) -> None:
    """Say that the work begins: stage `running`. From now on a lost lease costs an attempt.

    Call it first in a job that was claimed with `prestart=True`. Safe to repeat.

    Raises:
        LeaseLost: the lease is no longer yours: do not begin.
        StoreError: PostgreSQL refused or cannot be reached; try again.
    """
    progress(database, lease, stage="running")


def progress(  # noqa: PLR0913 -- keyword-only but two
    database: Database,
    lease: Lease,
    *,
    stage: str | None = None,
    done: int | None = None,
    total: int | None = None,
    checkpoint: Any = None,
) -> None:
    """Write how far the job is; what is None stays as it is. Does not extend the lease.

    `stage` names what the job is doing, `done` of `total` units are through, and the next attempt
    finds `checkpoint`, anything JSON can hold, in its `lease.checkpoint`. Safe to repeat.

    Raises:
        LeaseLost: the lease is no longer yours: stop the work.
        ConfigError: nothing was given, or an argument is out of range.
        StoreError: PostgreSQL refused (more done than the total it knows) or cannot be reached.
    """
    if stage is None and done is None and total is None and checkpoint is None:
        raise ConfigError("progress() was given nothing to write: pass stage, done, total or more")
    most = arguments.optional(arguments.whole, "total", total, 0, arguments.INT8_MAX)
    limit = arguments.INT8_MAX if most is None else most
    held = leasing.progress_job(
        database,
        lease,
        stage=arguments.optional(arguments.name, "stage", stage),
        progress_done=arguments.optional(arguments.whole, "done", done, 0, limit),
        progress_total=most,
        checkpoint=arguments.optional(arguments.json_text, "checkpoint", checkpoint),
    )
    _held(lease, held)


def succeed(database: Database, lease: Lease) -> None:
    """End the job well.

    Raises:
        LeaseLost: the lease is no longer yours; what the job did counts as not done.
        StoreError: PostgreSQL refused or cannot be reached. Calling again is safe; `LeaseLost` may
            then mean that the first call got through.
    """
    _held(lease, leasing.succeed_job(database, lease))


def fail(  # noqa: PLR0913 -- keyword-only but two
    database: Database,
    lease: Lease,
    *,
    kind: JobFailureKind = JobFailureKind.RETRYABLE,
    code: str | None = None,
    message: str | None = None,
    retry_delay_ms: int | None = None,
) -> bool:
    """End the attempt badly; return whether that killed the job.

    A job dies of a TERMINAL failure, and of any in its last attempt. Its dead letter and the ledger
    row of its `on_dead_letter` hook are written in the same transaction: the next redelivery rings.

    Args:
        database: where the jobs are.
        lease: the job.
        kind: RETRYABLE, TERMINAL, PANICKED or TIMEOUT.
        code: what kind of error, up to 255 characters, such as `mail.refused`.
        message: its text; what PostgreSQL cannot keep is replaced, and it is cut after 2,000
            characters. Handlers see it, so keep secrets out of it.
        retry_delay_ms: until the job may run again, milliseconds; None is 5 s, doubled with each
            attempt, an hour at most.

    Raises:
        LeaseLost: the lease is no longer yours; nothing was written.
        ConfigError: an argument is out of range.
        StoreError: as in `succeed`.
    """
    if kind not in FAILURE_KINDS:
        raise ConfigError(f"kind={kind!r} is not allowed: it takes {', '.join(FAILURE_KINDS)}")
    backoff_ms = min(RETRY_FIRST_MS << max(0, min(lease.attempt - 1, 30)), RETRY_MAX_MS)
    delay_ms = backoff_ms if retry_delay_ms is None else retry_delay_ms
    disposition = leasing.fail_job(
        database,
        lease,
        failure_kind=JobFailureKind(kind).value,
        error_code=arguments.optional(arguments.name, "code", code),
        error_message=None if message is None else arguments.kept_text(message),
        retry_delay_ms=arguments.whole("retry_delay_ms", delay_ms, 0),
    )
    _held(lease, disposition is not None)
    return disposition == "dead_lettered"


def _held(lease: Lease, held: bool) -> None:
    if not held:
        raise LeaseLost(
            f"the lease of job {lease.job_id} (run {lease.run_number}, attempt {lease.attempt}, "
            f"worker {lease.worker_id!r}) is lost: it expired, was reaped or has ended; nothing "
            "was written, stop working on this job"
        )
