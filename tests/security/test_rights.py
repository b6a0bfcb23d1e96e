"""The rights `reaper migrate --grant` gives: enough for everything, each one needed."""

import pytest

from reaper.config import Settings
from reaper.errors import StoreError
from reaper.reap import redeliver, run_tick
from reaper.store import Database, schema
from reaper.store.rights import WORKER_RIGHTS
from tests.harness.databases import run
from tests.harness.rows import fetch, hook_states, insert_leased
from tests.harness.waiting import eventually
from tests.security.roles import dsn_of, plain_role


@pytest.fixture
def role(dsn):
    """Name of a role that was granted what reaper needs, and nothing else."""
    run(dsn, "REVOKE CREATE ON SCHEMA public FROM public")
    with plain_role(dsn) as name:
        migrating = Database(dsn)
        schema.migrate(migrating, grant_to=name)
        migrating.close()
        yield name


def test_the_granted_rights_are_the_listed_ones(dsn, connect, role):
    """Nothing more than the list, and no right on any other table."""
    granted = fetch(
        connect(),
        "SELECT c.oid::regclass::text AS place, p.privilege_type AS privilege"
        " FROM pg_class AS c, aclexplode(c.relacl) AS p"
        f" WHERE p.grantee = '{role}'::regrole",
    )
    assert sorted((row["place"], row["privilege"]) for row in granted) == sorted(WORKER_RIGHTS)


def test_everything_runs_with_the_granted_rights(processes, connect, dsn, role):
    """Beat, ticks, hooks of every outcome, redelivery, pruning and the commands that read."""
    connection = connect()
    run(dsn, f"GRANT INSERT ON effects TO {role}")
    here = processes.at(dsn=dsn_of(role, dsn))
    limits = {"hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 0.5}
    for kind in ("ok", "raises", "blocks", "nobody"):
        insert_leased(connection, job_type=kind)
    insert_leased(connection, job_type="ok", max_attempts=3)
    insert_leased(connection, job_type="ok", prestart=True)
    workers = [
        here.beat(interval_seconds=0.5, **limits),
        here.reap_worker(interval_seconds=0.5, **limits),
        here.hook_worker(**limits),
    ]
    wanted = {"completed": 1, "failed": 1, "timed_out": 1, "unhandled": 1}
    eventually(lambda: hook_states(connection) == wanted, 60)

    commands = [
        here.reaper("reap", "--json"),
        here.reaper("status", "--json"),
        here.reaper("doctor", "--json"),
        here.reaper("dead-letters", "list", "--json"),
        here.reaper("hooks", "list", "--json"),
        here.reaper("prune"),
    ]
    for command in commands:
        assert command.wait(60) in {0, 1}, command.log
    for process in [*workers, *commands]:
        assert "42501" not in process.log
        assert "permission denied" not in process.log


def test_a_poison_row_is_set_aside_with_the_granted_rights(dsn, connect, role, settings):
    connection = connect()
    insert_leased(connection, job_type="ok")
    run(dsn, "ALTER TABLE job_queue ADD CHECK (status <> 'DEAD_LETTERED')")
    database = Database(dsn_of(role, dsn))
    result = run_tick(database, settings(), lambda hooks: True, quiet_seconds=0)
    database.close()
    assert len(result.deferred) == 1


TICK = {
    ("job_queue", "SELECT"),
    ("job_queue", "UPDATE"),
    ("job_attempts", "SELECT"),
    ("job_attempts", "UPDATE"),
    ("job_attempts", "DELETE"),
    ("job_events", "INSERT"),
    ("job_dead_letters", "INSERT"),
    ("reaper.schema_version", "SELECT"),
    ("reaper.terminal_hooks", "SELECT"),
    ("reaper.terminal_hooks", "INSERT"),
    ("reaper.terminal_hooks", "UPDATE"),
    ("reaper.hook_types", "SELECT"),
    ("reaper.ticks", "UPDATE"),
    ("reaper.tick_totals", "INSERT"),
    ("reaper.deferred", "SELECT"),
}
"""Rights whose lack a tick, a redelivery or the check at start runs into at once."""


def start_and_tick(database: Database, settings: Settings) -> None:
    """What a reap worker does from its start to the end of its first redelivery."""
    schema.check(database)
    run_tick(database, settings, lambda hooks: True, quiet_seconds=0)
    redeliver(database, settings, lambda hooks: True, lambda: 0)


def test_a_lacking_right_is_told_in_a_sentence_with_the_cure(dsn, connect, role, settings):
    """Each right of a tick, taken away alone, gives one sentence that names the table."""
    assert set(WORKER_RIGHTS) >= TICK
    for table, right in sorted(TICK):
        run(dsn, f"REVOKE {right} ON {table} FROM {role}")
        insert_leased(connect(), job_type="ok")
        database = Database(dsn_of(role, dsn))
        with pytest.raises(StoreError) as refused:
            start_and_tick(database, settings())
        database.close()
        told = str(refused.value)
        assert f"permission denied for table {table.rpartition('.')[2]}" in told, (table, right)
        assert "reaper migrate --grant ROLE" in told
        assert "\n" not in told
        run(dsn, f"GRANT {right} ON {table} TO {role}")


def test_a_schema_that_may_not_be_used_is_told(dsn, role):
    run(dsn, f"REVOKE USAGE ON SCHEMA reaper FROM {role}")
    database = Database(dsn_of(role, dsn))
    with pytest.raises(StoreError, match="permission denied for schema reaper"):
        schema.check(database)
    database.close()


def test_a_role_without_rights_is_told_by_every_process(processes, dsn):
    """A worker or command under a plain role ends with one line that names the cure."""
    with plain_role(dsn) as role:
        here = processes.at(dsn=dsn_of(role, dsn))
        for process in [here.reap_worker(), here.hook_worker(), here.reaper("reap")]:
            assert process.wait(60) in {1, 2}
            (line,) = [line for line in process.log.splitlines() if line.startswith("reaper: ")]
            assert "permission denied" in line
            assert "reaper migrate --grant ROLE" in line
            assert "Traceback" not in process.log


def test_grant_is_one_command_for_the_owner_and_safe_to_repeat(processes, dsn, connect):
    """`reaper migrate --grant ROLE`: twice the same; a role that is not there is told."""
    with plain_role(dsn) as role:
        for _ in range(2):
            command = processes.reaper("migrate", "--grant", role)
            assert command.wait(60) == 0, command.log
        assert f"the role {role} may run reaper" in command.log
    missing = processes.reaper("migrate", "--grant", "no-such; role")
    assert missing.wait(60) == 2
    assert "there is no role 'no-such; role'" in missing.log
    assert "Traceback" not in missing.log


def test_grant_by_a_role_that_owns_nothing_is_refused(dsn, role):
    """PostgreSQL only warns where the grantor may not grant: reaper says what lacks."""
    with plain_role(dsn) as other:
        run(dsn, f"GRANT {role} TO {other}")
        database = Database(dsn_of(role, dsn))
        with pytest.raises(StoreError):
            schema.migrate(database, grant_to=other)
        database.close()


def test_the_sequence_of_a_serial_column_is_granted_too(dsn, connect, settings):
    """Older layouts number events by a serial column, which needs its sequence."""
    run(dsn, "ALTER TABLE job_events ALTER COLUMN id DROP IDENTITY")
    run(dsn, "CREATE SEQUENCE event_ids OWNED BY job_events.id")
    run(dsn, "ALTER TABLE job_events ALTER COLUMN id SET DEFAULT nextval('event_ids')")
    with plain_role(dsn) as role:
        database = Database(dsn)
        schema.migrate(database, grant_to=role)
        database.close()
        insert_leased(connect(), job_type="ok")
        database = Database(dsn_of(role, dsn))
        result = run_tick(database, settings(), lambda hooks: True, quiet_seconds=0)
        database.close()
    assert result.dead_lettered == 1


def test_a_role_with_an_unusual_name_is_quoted(dsn):
    name = 'reaper "test" user'
    quoted = '"' + name.replace('"', '""') + '"'
    run(dsn, f"DROP ROLE IF EXISTS {quoted}")
    run(dsn, f"CREATE ROLE {quoted}")
    try:
        database = Database(dsn)
        schema.migrate(database, grant_to=name)
        database.close()
    finally:
        run(dsn, f"DROP OWNED BY {quoted}")
        run(dsn, f"DROP ROLE {quoted}")
