"""Creating, upgrading and checking the schema `reaper`."""

from dataclasses import dataclass

from reaper import sql
from reaper.errors import SchemaError
from reaper.store import rights
from reaper.store.connection import Database, Transaction

JOB_TABLES = ("job_definitions", "job_queue", "job_attempts", "job_events", "job_dead_letters")

MIGRATION_TIMEOUT_MS = 1_800_000
"""A migration may build an index on a large ledger: half an hour."""

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


def migrate(
    database: Database, *, with_job_tables: bool = False, grant_to: str | None = None
) -> Migrated:
    """Create or upgrade the schema `reaper`; with `with_job_tables` the job tables where none are.

    1. Take the migration's lock, so that two at once apply everything once.
    2. Create or check the job tables; existing ones are never altered.
    3. Apply the migrations that are missing, in order.
    4. Give the role `grant_to` what reaper's processes need.

    All of it in one transaction. Safe to repeat and to run twice at once.

    Raises:
        SchemaError: the job tables are missing, partly there or of a foreign layout, or the schema
            is newer than this version of reaper, or not reaper's.
        StoreError: PostgreSQL refused, for example for lack of rights; nothing was changed.
    """
    with database.transaction(statement_timeout_ms=MIGRATION_TIMEOUT_MS) as transaction:
        transaction.execute("lock_migration")
        layout = _layout(transaction)
        made = _job_tables(transaction, layout, with_job_tables)
        _refuse_foreign(layout.get("reaper", set()))
        transaction.execute("create_schema")
        current = transaction.execute("schema_version")[0][0] or 0
        _refuse_newer(current)
        applied = []
        for version, text in sql.migrations():
            if version > current:
                transaction.run(text)
                transaction.execute("record_migration", {"version": version})
                applied.append(version)
        if grant_to is not None:
            rights.grant(transaction, grant_to)
    return Migrated(tuple(applied), latest_version(), made)


def check(database: Database) -> None:
    """Return if the schema `reaper` is there in this version.

    Raises:
        SchemaError: it is missing, older or newer, with the command to run.
        StoreError: PostgreSQL cannot be reached, or the role lacks rights.
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


def _refuse_foreign(found: set[str]) -> None:
    """The schema may be missing, empty (an administrator made it) or reaper's own."""
    if found - {""} and "schema_version.version" not in found:
        raise SchemaError(
            "this database has a schema `reaper` that is not this package's: it has tables but no "
            "schema_version; rename it or use another database; nothing was changed"
        )


def _job_tables(
    transaction: Transaction, layout: dict[str, set[str]], with_job_tables: bool
) -> bool:
    """Create the job tables if asked and none is there; otherwise check them. True if created."""
    if "workflow_steps" in layout:
        raise SchemaError(
            "this database has a table workflow_steps: reaping a workflow's job would strand its "
            "run, and newer layouts keep the link there; reaper does not support workflows, use a "
            "database without them; nothing was changed"
        )
    if not any(table in layout for table in JOB_TABLES):
        if not with_job_tables:
            raise SchemaError(
                "this database has no job tables (job_queue ...) that the role sees without naming "
                "a schema; point REAPER_DATABASE_URL at the one that has them, let the role's "
                "search_path name their schema, or create them with "
                "`reaper migrate --with-job-tables`"
            )
        transaction.execute("job_tables")
        return True
    missing = _missing(layout)
    if missing:
        raise SchemaError(
            f"the job tables are not of the layout reaper knows: {', '.join(missing)} missing; "
            "docs/architecture.md lists the columns it needs; nothing was changed"
        )
    return False


def _missing(layout: dict[str, set[str]]) -> list[str]:
    tables = [table for table in JOB_TABLES if table not in layout]
    return tables + [
        f"{table}.{column}"
        for table, needed in _NEEDED_COLUMNS.items()
        if table in layout
        for column in sorted(needed - layout[table])
    ]


def _layout(transaction: Transaction) -> dict[str, set[str]]:
    """The columns of the tables this role sees, and those of the schema `reaper` together."""
    found: dict[str, set[str]] = {}
    for table, column in transaction.execute(
        "read_layout", {"tables": [*JOB_TABLES, "workflow_steps"]}
    ):
        found.setdefault(table, set()).add(column)
    return found


__all__ = ["JOB_TABLES", "Migrated", "check", "latest_version", "migrate"]
