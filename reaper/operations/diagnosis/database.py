"""Checks of the database: reachable, migrated, indexed, allowed, in time."""

from reaper.errors import StoreError
from reaper.operations.diagnosis.findings import Finding, fail, listed, ok, warn
from reaper.operations.diagnosis.scene import Scene
from reaper.store import inspection, schema
from reaper.store.rights import WORKER_RIGHTS

CLOCK_SECONDS = 2.0
"""Above what NTP leaves between two hosts, below what a person notices in a log."""

LEDGER_INDEXES = (
    "terminal_hooks_pkey",
    "terminal_hooks_job",
    "terminal_hooks_pending",
    "terminal_hooks_running",
    "terminal_hooks_finished",
    "terminal_hooks_unhappy",
)

LEASE_INDEX = (
    "CREATE INDEX CONCURRENTLY job_queue_leased ON job_queue (lease_expires_at) "
    "WHERE status = 'LEASED'"
)


def check_reachable(scene: Scene) -> Finding:
    """PostgreSQL answers."""
    try:
        inspection.read_clock(scene.database)
    except StoreError as error:
        return fail(
            "database",
            f"{error}; the checks that read it were left out",
            "start PostgreSQL, or correct REAPER_DATABASE_URL",
        )
    return ok("database", "PostgreSQL answers")


def check_writable(scene: Scene) -> Finding:
    """PostgreSQL takes writes."""
    _, is_read_only = inspection.read_clock(scene.database)
    if is_read_only:
        return fail(
            "writable",
            "PostgreSQL only answers reads: a standby, or default_transaction_read_only is on",
            "point REAPER_DATABASE_URL at the primary (target_session_attrs=read-write finds it "
            "among several hosts)",
        )
    return ok("writable", "PostgreSQL takes writes")


def check_schema(scene: Scene) -> Finding:
    """The schema `reaper` is there, in this version."""
    try:
        schema.check(scene.database)
    except StoreError as error:
        return fail("schema", str(error), "run `reaper migrate`")
    return ok("schema", f"the schema `reaper` is at version {schema.latest_version()}")


def check_workflow_steps(scene: Scene) -> Finding:
    """There is no workflow layout, which reaper does not support."""
    if inspection.find_workflow_steps(scene.database):
        return fail(
            "workflow-steps",
            "there is a table workflow_steps: reaping a workflow's job would strand its run",
            "do not run reaper on this database; it needs one without workflows",
        )
    return ok("workflow-steps", "no workflow tables")


def check_lease_index(scene: Scene) -> Finding:
    """Expired leases can be found by index."""
    broken = [
        index
        for table, index, usable in inspection.list_indexes(scene.database)
        if table == "job_queue" and not usable
    ]
    drop = f"DROP INDEX CONCURRENTLY {broken[0]}; " if broken else ""
    if not inspection.explain_expired(scene.database):
        return fail(
            "lease-index",
            "no usable index finds expired leases: every tick reads the whole queue"
            + (f"; {listed(broken)} is invalid, left by a build that failed" if broken else ""),
            drop + LEASE_INDEX,
        )
    if broken:
        return warn("lease-index", f"{listed(broken)} on job_queue is invalid", drop.rstrip("; "))
    return ok("lease-index", "an index finds expired leases")


def check_ledger_indexes(scene: Scene) -> Finding:
    """The ledger's indexes are there and valid."""
    usable = {index for _, index, usable in inspection.list_indexes(scene.database) if usable}
    missing = [name for name in LEDGER_INDEXES if name not in usable]
    if missing:
        return fail(
            "ledger-indexes",
            f"missing or invalid on reaper.terminal_hooks: {listed(missing, 6)}",
            "create them again as in reaper/sql/schema (REINDEX INDEX CONCURRENTLY for invalid "
            "ones)",
        )
    return ok("ledger-indexes", "the ledger's indexes are there")


def check_rights(scene: Scene) -> Finding:
    """The role may do what reaper does."""
    missing = inspection.list_missing_rights(scene.database, WORKER_RIGHTS)
    if missing:
        return fail(
            "rights",
            "the role lacks " + listed((f"{right} on {table}" for table, right in missing), 6),
            "as the tables' owner: `reaper migrate --grant ROLE`",
        )
    return ok("rights", "the role may do all that reaper does")


def check_clock(scene: Scene) -> Finding:
    """This host's clock agrees with the database's. Only logs and people go by the former."""
    before = scene.host_clock()
    theirs, _ = inspection.read_clock(scene.database)
    after = scene.host_clock()
    skew = (before + after) / 2 - theirs
    if abs(skew) > CLOCK_SECONDS + (after - before) / 2:
        ahead = "ahead of" if skew > 0 else "behind"
        return warn(
            "clock",
            f"this host is {abs(skew):.1f} s {ahead} the database: reaper goes by the database's "
            "clock, but its logs and your workers' lease times mislead",
            "synchronize both hosts (chrony, systemd-timesyncd)",
        )
    return ok("clock", f"this host and the database agree within {CLOCK_SECONDS:g} s")
