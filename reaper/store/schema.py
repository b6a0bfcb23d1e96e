"""Creating, upgrading and checking the schema `reaper`."""

from dataclasses import dataclass

from reaper import sql
from reaper.errors import SchemaError, StoreError
from reaper.store.connection import Database, Transaction

JOB_TABLES = ("job_definitions", "job_queue", "job_attempts", "job_events", "job_dead_letters")

_NEEDED_COLUMNS = {
    "job_queue": {
        "id",
        "job_type",
        "organization_id",
        "payload",
        "status",
        "run_number",
        "attempt",
        "max_attempts",
        "next_run_at",
        "lease_expires_at",
        "last_heartbeat_at",
        "worker_id",
        "started_at",
        "finished_at",
        "stage",
        "checkpoint",
        "status_reason",
        "last_error_code",
        "last_error_message",
        "workflow_step_id",
        "updated_at",
    },
    "job_attempts": {"job_id", "run_number", "attempt", "outcome", "claim_origin"},
    "job_events": {"job_id", "run_number", "attempt", "event_type", "payload", "occurred_at"},
    "job_dead_letters": {"job_id", "job_type", "payload_snapshot", "checkpoint_snapshot"},
}


@dataclass(frozen=True, slots=True)
class Migrated:
    """What `migrate` did: the versions applied and whether it made the job tables."""

    applied: tuple[int, ...]
    version: int
    made_job_tables: bool


def migrate(database: Database, *, with_job_tables: bool = False) -> Migrated:
    """Create or upgrade the schema `reaper`; with `with_job_tables` the job tables where none are.

    1. Take the migration's lock, so that two at once apply everything once.
    2. Create or check the job tables; existing ones are never altered.
    3. Apply the migrations that are missing, in order, all in this one transaction.

    Safe to repeat and to run twice at once.

    Raises:
        SchemaError: the job tables are missing, partly there or of a foreign layout, or the schema
            is newer than this version of reaper.
        StoreError: PostgreSQL refused, for example for lack of rights; nothing was changed.
    """
    with database.transaction(statement_timeout_ms=600_000) as transaction:
        transaction.run("SELECT pg_advisory_xact_lock(hashtextextended('reaper.migrate', 0))")
        made = _job_tables(transaction, with_job_tables)
        transaction.run("CREATE SCHEMA IF NOT EXISTS reaper")
        transaction.run(
            "CREATE TABLE IF NOT EXISTS reaper.schema_version"
            " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        current = transaction.run("SELECT coalesce(max(version), 0) FROM reaper.schema_version")
        _refuse_newer(current[0][0])
        applied = []
        for version, text in sql.migrations():
            if version > current[0][0]:
                transaction.run(text)
                transaction.run(
                    "INSERT INTO reaper.schema_version (version) VALUES (%(version)s)",
                    {"version": version},
                )
                applied.append(version)
    return Migrated(tuple(applied), latest_version(), made)


def check(database: Database) -> None:
    """Return if the schema `reaper` is there in this version.

    Raises:
        SchemaError: it is missing, older or newer, with the command to run.
        StoreError: PostgreSQL cannot be reached.
    """
    try:
        version = database.execute("schema_version")[0][0] or 0
    except SchemaError:
        raise SchemaError(
            "this database has no schema `reaper`; create it with `reaper migrate` "
            "(`reaper migrate --with-job-tables` makes the job tables too)"
        ) from None
    _refuse_newer(version)
    if version < latest_version():
        raise SchemaError(
            f"the schema `reaper` is at version {version}, this reaper needs "
            f"{latest_version()}; upgrade it with `reaper migrate`"
        )


def latest_version() -> int:
    """Return the version this reaper needs."""
    return sql.migrations()[-1][0]


def _refuse_newer(version: int) -> None:
    if version > latest_version():
        raise SchemaError(
            f"the schema `reaper` is at version {version}, newer than this reaper's "
            f"{latest_version()}; upgrade the package (`pip install --upgrade reaper`)"
        )


def _job_tables(transaction: Transaction, with_job_tables: bool) -> bool:
    """Create the job tables if asked and none is there; otherwise check them. True if created."""
    columns = _columns(transaction)
    if "workflow_steps" in columns:
        raise SchemaError(
            "this database has a table workflow_steps: reaping a workflow's job would strand its "
            "run, and newer layouts keep the link there; reaper does not support workflows, use a "
            "database without them"
        )
    present = [table for table in JOB_TABLES if table in columns]
    if not present:
        if not with_job_tables:
            raise SchemaError(
                "this database has no job tables (job_queue ...); point REAPER_DATABASE_URL at the "
                "one that has them, or create them with `reaper migrate --with-job-tables`"
            )
        transaction.run(sql.load("job_tables"))
        _time_ordered_ids(transaction)
        return True
    missing = [table for table in JOB_TABLES if table not in columns]
    missing += [
        f"{table}.{column}"
        for table, needed in _NEEDED_COLUMNS.items()
        if table in columns
        for column in sorted(needed - columns[table])
    ]
    if missing:
        raise SchemaError(
            f"the job tables are not of the layout reaper knows: {', '.join(missing)} missing; "
            "docs/architecture.md lists the columns it needs; nothing was changed"
        )
    return False


def _columns(transaction: Transaction) -> dict[str, set[str]]:
    """The columns of the tables this role sees without a schema name."""
    rows = transaction.run(
        "SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a"
        " ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')"
        " AND c.relname = ANY (%(tables)s)",
        {"tables": [*JOB_TABLES, "workflow_steps"]},
    )
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def _time_ordered_ids(transaction: Transaction) -> None:
    """Let new ids be ordered by time where the server can make such."""
    if transaction.run("SELECT to_regproc('pg_catalog.uuidv7')")[0][0] is not None:
        for table in ("job_queue", "job_attempts"):
            transaction.run(f"ALTER TABLE {table} ALTER COLUMN id SET DEFAULT uuidv7()")


__all__ = ["JOB_TABLES", "Migrated", "StoreError", "check", "latest_version", "migrate"]
