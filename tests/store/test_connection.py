"""One connection per process: made when needed, renewed when broken, left when it only reads."""

import os

import psycopg2
import pytest

from reaper.errors import ConfigError, SchemaError, StoreError
from reaper.store import Database
from tests.harness.databases import run
from tests.harness.rows import fetch


def end(connection, pid: int) -> None:
    fetch(connection, "SELECT pg_terminate_backend(%s)", (pid,))


def test_a_connection_is_opened_by_the_first_statement_only(dsn, connect):
    database = Database(dsn, application_name="reaper lazy")
    seen = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'reaper lazy'"
    assert fetch(connect(), seen) == [{"n": 0}]
    database.execute("schema_version")
    assert fetch(connect(), seen) == [{"n": 1}]
    database.close()


def test_a_terminated_connection_is_renewed_and_the_statement_sent_again(database, connect):
    """Case 17: `pg_terminate_backend` of every connection: the next statement works."""
    first = database.backend_pid
    end(connect(), first)
    assert database.execute("schema_version")
    assert database.backend_pid != first


def test_a_statement_that_may_not_be_repeated_is_told_and_the_next_one_works(database, connect):
    end(connect(), database.backend_pid)
    with pytest.raises(StoreError, match="cannot be reached"):
        database.execute("schema_version", repeatable=False)
    assert database.execute("schema_version", repeatable=False)


def test_a_transaction_begins_on_a_new_connection_when_the_old_one_is_gone(database, connect):
    end(connect(), database.backend_pid)
    with database.transaction() as transaction:
        assert transaction.execute("schema_version")


def test_a_thousand_statements_use_one_connection(database, connect):
    """The number of connections does not grow."""
    pid = database.backend_pid
    for _ in range(1000):
        database.execute("schema_version")
    assert database.backend_pid == pid


def test_a_forked_child_opens_its_own_connection_and_leaves_the_parents_alone(database):
    """An inherited connection would mix two processes' answers."""
    pid = database.backend_pid
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        own = database.backend_pid
        database.close()
        os.write(writing, str(own).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 100)) != pid
    os.close(reading)
    os.close(writing)
    assert database.execute("schema_version")
    assert database.backend_pid == pid


def test_no_setting_outlives_its_statement(database):
    """Behind pgbouncer in transaction mode nothing may stay in the session."""
    database.execute("schema_version", statement_timeout_ms=1234)
    with database.open().cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_statement_that_takes_too_long_is_ended_and_told(database, connect):
    blocker = connect()
    blocker.autocommit = False
    blocker.cursor().execute("LOCK TABLE reaper.schema_version")
    with pytest.raises(StoreError) as refused:
        database.execute("schema_version", statement_timeout_ms=100)
    blocker.rollback()
    assert refused.value.sqlstate in {"57014", "55P03"}
    assert database.execute("schema_version")


def test_a_server_that_became_a_standby_is_left_so_that_the_primary_is_found(
    database, dsn, connect
):
    """Read-only (25006): told with the cure, and the next statement connects again."""
    name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
    run(dsn, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    for transactional in (False, True):
        first = database.backend_pid
        with pytest.raises(StoreError, match="target_session_attrs=read-write") as refused:
            begin_tick(database, transactional=transactional)
        assert refused.value.sqlstate == "25006"
        assert database.backend_pid != first


def begin_tick(database: Database, *, transactional: bool) -> None:
    parameters = {"version": 77}
    if transactional:
        with database.transaction() as transaction:
            transaction.execute("record_migration", parameters)
    else:
        database.execute("record_migration", parameters)


def test_every_host_that_was_tried_is_told_in_one_line():
    database = Database("postgresql://u:hunter2@127.0.0.1:1,localhost:2/d?connect_timeout=2")
    with pytest.raises(StoreError) as refused:
        database.execute("schema_version")
    told = str(refused.value)
    assert "port 1 failed" in told
    assert "port 2 failed" in told
    assert "\n" not in told
    assert "hunter2" not in told


def test_a_url_libpq_cannot_read_is_a_setting_fault_without_its_password():
    with pytest.raises(ConfigError, match="libpq cannot read it") as refused:
        Database("postgresql://u:hunter2@h/d?no_such_option=1")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        ("DROP SCHEMA reaper CASCADE", SchemaError, "run `reaper migrate`"),
        ("ALTER TABLE reaper.schema_version RENAME version TO v", SchemaError, "42703"),
        (
            "ALTER TABLE reaper.schema_version ADD CHECK (version <> 77)",
            StoreError,
            "constraint schema_version_version_check",
        ),
        (
            (
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE 'row-secret'; END $$;"
                "CREATE TRIGGER refuse BEFORE INSERT ON reaper.schema_version"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            ),
            StoreError,
            "P0001",
        ),
    ],
)
def test_a_refusal_is_one_sentence_without_the_rows_contents(database, dsn, spoil, kind, said):
    run(dsn, spoil)
    with pytest.raises(kind) as refused:
        database.execute("record_migration", {"version": 77})
    told = str(refused.value)
    assert said in told
    assert "row-secret" not in told
    assert "\n" not in told
    assert refused.value.is_poison == (kind is StoreError)
