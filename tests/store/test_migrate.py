"""`reaper migrate`: twice, at once, on older servers, on foreign layouts, without superuser."""

from pathlib import Path
from typing import Any

import psycopg2
import pytest

from reaper.config import Settings
from reaper.embedded import EmbeddedPostgres
from reaper.errors import SchemaError, StoreError
from reaper.reap import run_tick
from reaper.store import Database, schema
from tests.harness.databases import run
from tests.harness.rows import fetch, insert_leased, job
from tests.security.roles import dsn_of, plain_role

POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")

_CATALOGUE = """
SELECT c.relname, c.relkind::text, c.reloptions::text, c.relacl::text, a.attname, a.attnum,
    format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
    pg_get_expr(d.adbin, d.adrelid) AS default_value,
    (SELECT array_agg(pg_get_constraintdef(o.oid) ORDER BY o.conname) FROM pg_constraint AS o
     WHERE o.conrelid = c.oid) AS constraints,
    (SELECT array_agg(t.tgname ORDER BY t.tgname) FROM pg_trigger AS t
     WHERE t.tgrelid = c.oid AND NOT t.tgisinternal) AS triggers
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace
ORDER BY c.relname, a.attnum
"""


def catalogue(connection: Any) -> list[dict[str, Any]]:
    """Everything of schema public that a migration could alter."""
    return fetch(connection, _CATALOGUE)


def migrated(dsn: str, **options: Any) -> schema.Migrated:
    database = Database(dsn)
    try:
        return schema.migrate(database, **options)
    finally:
        database.close()


def reap(dsn: str) -> None:
    database = Database(dsn)
    run_tick(database, Settings(database_url=dsn), lambda hooks: True, quiet_seconds=0)
    database.close()


def test_migrate_applies_everything_once_when_run_twice(empty_dsn, connect):
    """`reaper migrate` is safe to repeat."""
    first = migrated(empty_dsn, with_job_tables=True)
    second = migrated(empty_dsn, with_job_tables=True)

    versions = [row["version"] for row in fetch(connect(empty_dsn), "TABLE reaper.schema_version")]
    assert first.applied == tuple(versions)
    assert first.made_job_tables
    assert second.applied == ()
    assert not second.made_job_tables


def test_migrate_applies_everything_once_when_eight_run_at_once(empty_dsn, connect, processes):
    """Any number of processes may migrate at the same moment."""
    here = processes.at(dsn=empty_dsn)
    started = [here.reaper("migrate", "--with-job-tables") for _ in range(8)]

    assert [process.wait(90) for process in started] == [0] * 8
    assert sum("created the job tables" in process.log for process in started) == 1
    assert sum("applied migration 1" in process.log for process in started) == 1
    assert fetch(connect(empty_dsn), "SELECT version FROM reaper.schema_version")


def test_migrate_leaves_existing_job_tables_as_they_are(empty_dsn, connect):
    """Existing job tables are never altered: extra columns, triggers and defaults stay."""
    connection = connect(empty_dsn)
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    run(
        empty_dsn,
        "ALTER TABLE job_queue ADD COLUMN tenant text, ALTER COLUMN stage SET DEFAULT 'x'",
    )
    run(empty_dsn, "ALTER TABLE job_events ADD COLUMN trace uuid")
    before = catalogue(connection)

    migrated(empty_dsn)
    migrated(empty_dsn, with_job_tables=True)

    assert catalogue(connection) == before


@pytest.mark.skipif(not POSTGRES_15.is_dir(), reason="no PostgreSQL 15 on this machine")
def test_migrate_makes_tables_that_can_be_reaped_on_postgresql_15():
    """PostgreSQL 15 has no uuidv7(); everything else is the same."""
    with EmbeddedPostgres(bin_dir=POSTGRES_15, settings={"fsync": "off"}) as server:
        assert migrated(server.dsn, with_job_tables=True).made_job_tables
        assert migrated(server.dsn).applied == ()
        connection = psycopg2.connect(server.dsn)
        connection.autocommit = True
        job_id = insert_leased(connection)[0]
        reap(server.dsn)
        assert job(connection, job_id)["status"] == "DEAD_LETTERED"
        connection.close()


def test_migrate_gives_new_jobs_ids_ordered_by_time_on_postgresql_18(dsn, connect):
    default = fetch(
        connect(),
        "SELECT pg_get_expr(adbin, adrelid) AS made FROM pg_attrdef"
        " WHERE adrelid = 'job_queue'::regclass AND adnum = 1",
    )
    if connect().server_version < 180_000:
        pytest.skip("the given server is older than PostgreSQL 18")
    assert default[0]["made"] == "uuidv7()"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("DROP TABLE job_dead_letters", "job_dead_letters missing"),
        ("ALTER TABLE job_queue DROP COLUMN run_number", "job_queue.run_number missing"),
        ("ALTER TABLE job_attempts RENAME claim_origin TO origin", "job_attempts.claim_origin"),
        ("CREATE TABLE workflow_steps (id uuid)", "workflow_steps"),
    ],
)
def test_migrate_refuses_a_foreign_layout_and_changes_nothing(empty_dsn, connect, spoil, said):
    """A partial or foreign layout is refused with what is missing; nothing is changed."""
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    run(empty_dsn, spoil)
    before = catalogue(connect(empty_dsn))

    with pytest.raises(SchemaError) as refused:
        migrated(empty_dsn, with_job_tables=True)

    assert said in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    assert catalogue(connect(empty_dsn)) == before
    assert fetch(connect(empty_dsn), "SELECT to_regnamespace('reaper') AS it")[0]["it"] is None


def test_migrate_refuses_a_schema_of_that_name_that_is_somebody_elses(empty_dsn, connect):
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    run(empty_dsn, "CREATE SCHEMA reaper CREATE TABLE grim (soul text)")

    with pytest.raises(SchemaError, match="not this package's"):
        migrated(empty_dsn)

    tables = "SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'reaper'"
    assert fetch(connect(empty_dsn), tables)[0]["n"] == 1


def test_migrate_says_which_command_makes_the_job_tables_when_there_are_none(empty_dsn):
    with pytest.raises(SchemaError, match="reaper migrate --with-job-tables"):
        migrated(empty_dsn)


def test_migrate_refuses_a_newer_schema(dsn):
    run(dsn, "INSERT INTO reaper.schema_version (version) VALUES (99)")
    with pytest.raises(SchemaError, match="newer than this reaper's"):
        migrated(dsn)


def test_migrate_undoes_everything_when_it_fails_half_way(empty_dsn, connect):
    """One transaction: a migration that fails leaves nothing behind."""
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    run(empty_dsn, "CREATE SCHEMA reaper")
    run(
        empty_dsn,
        "CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF to_regclass('reaper.deferred') IS NOT NULL THEN RAISE 'as planned'; END IF; END $$",
    )
    run(
        empty_dsn,
        "CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION public.refuse()",
    )

    with pytest.raises(StoreError):
        migrated(empty_dsn)

    tables = "SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'reaper'"
    assert fetch(connect(empty_dsn), tables)[0]["n"] == 0


def test_migrate_works_for_a_role_that_is_no_superuser(empty_dsn, connect):
    """`reaper migrate` needs CREATE on the database (and on the job tables' schema), no more."""
    with plain_role(empty_dsn) as role:
        name = psycopg2.extensions.parse_dsn(empty_dsn)["dbname"]
        run(empty_dsn, f'GRANT CREATE ON DATABASE "{name}" TO {role}')
        run(empty_dsn, f"GRANT CREATE ON SCHEMA public TO {role}")

        done = migrated(dsn_of(role, empty_dsn), with_job_tables=True)

        assert done.applied
        owner = "SELECT tableowner FROM pg_tables WHERE schemaname = 'reaper' GROUP BY 1"
        assert [row["tableowner"] for row in fetch(connect(empty_dsn), owner)] == [role]


def test_migrate_works_without_create_on_the_database_when_the_schema_is_prepared(empty_dsn):
    """An administrator may make the schema `reaper` for a role that may make none."""
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    with plain_role(empty_dsn) as role:
        run(empty_dsn, f"CREATE SCHEMA reaper AUTHORIZATION {role}")
        assert migrated(dsn_of(role, empty_dsn)).applied
        assert migrated(dsn_of(role, empty_dsn)).applied == ()


def test_migrate_says_what_is_refused_when_the_role_has_no_rights(empty_dsn):
    migrated(empty_dsn, with_job_tables=True)
    run(empty_dsn, "DROP SCHEMA reaper CASCADE")
    with (
        plain_role(empty_dsn) as role,
        pytest.raises(StoreError, match="permission denied for database") as refused,
    ):
        migrated(dsn_of(role, empty_dsn))
    assert "\n" not in str(refused.value)


def test_job_tables_in_another_schema_are_found_and_reaped_when_the_search_path_names_it(
    empty_dsn, connect
):
    """The role's search_path decides where the job tables are."""
    run(empty_dsn, "CREATE SCHEMA work")
    name = psycopg2.extensions.parse_dsn(empty_dsn)["dbname"]
    run(empty_dsn, f'ALTER DATABASE "{name}" SET search_path = work')

    assert migrated(empty_dsn, with_job_tables=True).made_job_tables
    connection = connect(empty_dsn)
    job_id = insert_leased(connection)[0]
    reap(empty_dsn)

    assert job(connection, job_id)["status"] == "DEAD_LETTERED"
    where = "SELECT schemaname FROM pg_tables WHERE tablename = 'job_queue'"
    assert fetch(connection, where) == [{"schemaname": "work"}]
