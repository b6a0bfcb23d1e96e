"""`reaper doctor` on the database: each check is made to fail for real."""

import time

import psycopg2
import pytest

from reaper.operations.diagnosis import Scene, diagnose, worst
from reaper.store import Database, schema
from tests.harness import databases
from tests.operations.conftest import QUIET_BROKER


def test_doctor_finds_nothing_wrong_with_a_fresh_database(findings, kill):
    """Before the first tick there is one; after it all is well."""
    assert findings()["tick"].severity == "fail"
    kill()

    found = findings()

    wrong = {f.id for f in found.values() if f.severity != "ok"}
    assert wrong == {"beat", "reap-consumers", "hook-consumers"}


def test_doctor_says_when_the_database_is_away(settings):
    """An unreachable PostgreSQL is a finding; what does not need it is checked all the same."""
    nowhere = settings(database_url="postgresql://nobody@127.0.0.1:9/none")
    scene = Scene(Database("postgresql://nobody@127.0.0.1:9/none"), nowhere, lambda: QUIET_BROKER)

    found = {f.id: f for f in diagnose(scene)}

    assert found["database"].severity == "fail"
    assert "cannot be reached" in found["database"].found
    assert "schema" not in found
    assert found["broker"].severity == "ok"
    assert worst(found.values()) == "fail"


def test_doctor_says_when_the_schema_is_missing(empty_dsn, settings):
    """Case 40, as a finding with the command to run."""
    scene = Scene(Database(empty_dsn), settings(database_url=empty_dsn), lambda: QUIET_BROKER)

    found = {f.id: f for f in diagnose(scene)}

    assert found["schema"].severity == "fail"
    assert "reaper migrate" in (found["schema"].cure or "")
    assert "lease-index" not in found


def test_doctor_says_when_the_server_only_answers_reads(findings, dsn, database):
    """Case 41, as a finding."""
    name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
    assert findings()["writable"].severity == "ok"
    databases.run(dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database.close()

    found = findings()

    assert found["writable"].severity == "fail"
    assert "only answers reads" in found["writable"].found


def test_doctor_refuses_a_database_with_workflow_steps(findings, rows):
    rows("CREATE TABLE workflow_steps (id uuid); SELECT 1")

    assert findings()["workflow-steps"].severity == "fail"


def test_doctor_finds_a_missing_lease_index(findings, rows):
    """Without the partial index every tick reads the whole queue."""
    assert findings()["lease-index"].severity == "ok"
    rows("DROP INDEX job_queue_leased; SELECT 1")

    found = findings()["lease-index"]
    assert found.severity == "fail"
    assert "CREATE INDEX CONCURRENTLY" in (found.cure or "")

    rows("CREATE INDEX elsewhere ON job_queue (lease_expires_at) WHERE status = 'PENDING';SELECT 1")
    assert findings()["lease-index"].severity == "fail"
    rows("CREATE INDEX whole ON job_queue (lease_expires_at); SELECT 1")
    assert findings()["lease-index"].severity == "ok"


def test_doctor_finds_an_unusable_lease_index(findings, connect, rows):
    """A CREATE INDEX CONCURRENTLY that failed leaves an index nobody can use."""
    rows("DROP INDEX job_queue_leased; SELECT 1")
    rows("INSERT INTO job_definitions VALUES ('demo') RETURNING 1")
    rows(
        "INSERT INTO job_queue (job_type, status, max_attempts, worker_id, lease_expires_at)"
        " SELECT 'demo', 'LEASED', 1, 'w', '2026-01-01' FROM generate_series(1, 2) RETURNING 1"
    )
    with connect().cursor() as cursor, pytest.raises(psycopg2.errors.UniqueViolation):
        cursor.execute(
            "CREATE UNIQUE INDEX CONCURRENTLY job_queue_leased ON job_queue (lease_expires_at)"
            " WHERE status = 'LEASED'"
        )

    found = findings()["lease-index"]

    assert found.severity == "fail"
    assert "job_queue_leased is invalid" in found.found
    assert "DROP INDEX CONCURRENTLY job_queue_leased" in (found.cure or "")


def test_doctor_finds_a_missing_ledger_index(findings, rows):
    rows("DROP INDEX reaper.terminal_hooks_pending; SELECT 1")

    found = findings()["ledger-indexes"]

    assert found.severity == "fail"
    assert "terminal_hooks_pending" in found.found


def test_doctor_names_each_right_the_role_lacks(dsn, connect, settings):
    """A role with all needed rights but one: that one is named, with the cure."""
    with connect().cursor() as cursor, databases.role(dsn) as (role, url):
        owner, own = Database(dsn), Database(url)
        schema.migrate(owner, grant_to=role)
        owner.close()

        def rights_found():
            scene = Scene(own, settings(database_url=url), lambda: QUIET_BROKER)
            return {f.id: f for f in diagnose(scene)}["rights"]

        assert rights_found().severity == "ok"
        cursor.execute(f"REVOKE DELETE ON job_attempts FROM {role}")
        found = rights_found()
        own.close()
    assert found.severity == "fail"
    assert found.found == "the role lacks DELETE on job_attempts"
    assert "reaper migrate --grant" in found.cure


@pytest.mark.parametrize("hours", [-2, 2])
def test_doctor_finds_clocks_apart(findings, hours):
    """Case 19: two hours off either way costs nothing but is said."""
    found = findings(host_clock=lambda: time.time() + hours * 3600)["clock"]

    assert found.severity == "warn"
    assert ("ahead of" if hours > 0 else "behind") in found.found
    assert findings()["clock"].severity == "ok"


def test_the_schema_check_is_for_this_version(findings):
    assert f"version {schema.latest_version()}" in findings()["schema"].found
