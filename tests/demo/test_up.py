import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from reaper import leases
from reaper.errors import ConfigError, SchemaError
from reaper.processes.servers import development_servers, environment_file
from tests.demo.running import start
from tests.harness.rows import effects, insert_leased
from tests.harness.waiting import eventually

ON_ITS_OWN = {"database_url": None, "broker_url": None, "interval_seconds": 0.3}


def addresses(path: Path) -> list[str]:
    """What a shell knows after it has read an environment file."""
    script = f'. {path}; printf "%s\\n" "$REAPER_DATABASE_URL" "$REAPER_BROKER_URL"'
    return subprocess.check_output(["sh", "-c", script], text=True).splitlines()


def test_up_runs_the_users_handler_on_servers_of_its_own_and_leaves_nothing_behind(
    processes, temporary
):
    """README: `reaper up` needs no server, and Ctrl-C ends everything."""
    shutil.copy(Path(__file__).with_name("handlers_up.py"), temporary / "dev_handlers.py")
    told = temporary / "told"
    up = start(
        processes, temporary, "up", "--env-file", "dev.env", handlers="dev_handlers", **ON_ITS_OWN
    )
    env_file = eventually(lambda: next(temporary.glob("dev.env"), None), 60)
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600
    database = leases.connect(addresses(env_file)[0])
    leases.define_job_type(database, "mail", max_attempts=1)
    job_id = leases.enqueue(database, "mail", {"file": str(told)})
    leases.claim(database, "dead", lease_seconds=0.1)
    database.close()

    eventually(lambda: told.exists() and told.read_text(), 60)
    up.family()
    up.process.signal(signal.SIGINT)

    assert up.ended_with(0)
    assert told.read_text() == f"{job_id} lost by dead"
    assert "up    | SIGINT: ending all processes" in up.stdout
    for name in ("beat ", "reap ", "hooks"):
        assert f"\n{name} | " in up.stdout
    assert not env_file.exists()


def test_up_uses_the_given_servers_and_ends_all_when_one_process_dies(
    processes, temporary, connect
):
    """README: if one process ends by itself, all are ended, and the status is 1."""
    connection = connect()
    up = start(processes, temporary, "up", handlers="tests.harness.handlers", interval_seconds=0.3)
    dead = insert_leased(connection, job_type="ok")
    eventually(lambda: [row["job_id"] for row in effects(connection, "ok")] == dead, 60)
    assert up.servers() == set()

    up.named("reap@%h")[0].kill()

    assert up.ended_with(1)
    said = "reap (celery -A reaper worker -Q reaper -c 1 -n reap@%h) ended with signal SIGKILL"
    assert said in up.stdout
    assert "export" not in up.stdout


def test_up_ends_with_the_reason_when_a_handler_module_does_not_import(processes, temporary):
    up = start(processes, temporary, "up", handlers="no_such_module")

    assert up.ended_with(1)
    assert "hooks | reaper: handler module 'no_such_module'" in up.stdout
    assert "hooks (celery -A reaper worker -Q terminal-hooks" in up.stdout


def test_up_kills_running_hooks_when_it_is_told_twice(processes, temporary, connect):
    """README: a second Ctrl-C does not wait for running hooks."""
    connection = connect()
    up = start(processes, temporary, "up", handlers="tests.harness.handlers", interval_seconds=0.3)
    insert_leased(connection, job_type="sleeps")
    eventually(lambda: effects(connection, "begin"), 60)

    up.process.signal(signal.SIGINT)
    eventually(lambda: "ending all processes" in up.stdout)
    up.process.signal(signal.SIGINT)

    up.wait(8)  # the drain window alone is 13.8 s
    assert up.ended_with(0)


def test_up_starts_only_the_servers_when_asked(processes, temporary):
    up = start(processes, temporary, "up", "--servers-only", "--env-file", "dev.env", **ON_ITS_OWN)
    eventually((temporary / "dev.env").exists, 60)
    up.family()
    assert up.named("celery") == []
    assert up.servers() == {"postgres", "valkey-server"}

    up.process.signal(signal.SIGTERM)

    assert up.ended_with(0)


def test_up_names_the_command_when_a_given_database_has_no_schema(processes, temporary, empty_dsn):
    """A given database is only checked: creating things in it is its owner's decision."""
    up = start(processes, temporary, "up", database_url=empty_dsn)

    assert up.wait() == 2
    assert "this database has no schema `reaper`; create it with `reaper migrate`" in up.stderr
    assert up.left() == []


def test_servers_refuse_a_given_database_without_schema(empty_dsn, broker_url):
    with (
        pytest.raises(SchemaError, match="reaper migrate"),
        development_servers(empty_dsn, broker_url, directory=None),
    ):
        pytest.fail("the servers were started")


def test_servers_keep_their_data_when_they_have_a_directory(temporary):
    """README: --data keeps it."""
    for expected in (1, 2):
        with development_servers(None, None, directory=temporary / "data") as servers:
            database = leases.connect(servers.database_url)
            leases.define_job_type(database, f"type-{expected}")
            leases.enqueue(database, f"type-{expected}", {})
            assert len(leases.claim(database, "w", batch_size=9)) == 1
            found = database.execute("demo_outcomes")
            assert len(found) == expected
            database.close()


def test_environment_file_is_refused_when_it_is_somebody_elses(tmp_path):
    theirs = tmp_path / ".env"
    theirs.write_text("SECRET=1\n")
    with (
        pytest.raises(ConfigError, match="not written by `reaper up`; name another file"),
        environment_file(theirs, []),
    ):
        pytest.fail("it was taken")
    assert theirs.read_text() == "SECRET=1\n"


def test_environment_file_is_replaced_when_an_earlier_run_left_it(tmp_path):
    path = tmp_path / "dev.env"
    with environment_file(path, ["export REAPER_DATABASE_URL=old"]):
        left = path.read_text()
    path.write_text(left)
    with environment_file(path, ["export REAPER_DATABASE_URL='a b'"]):
        assert addresses(path)[0] == "a b"
    assert not path.exists()


def test_environment_file_says_which_when_it_cannot_be_written(tmp_path):
    path = tmp_path / "missing" / "dev.env"
    with (
        pytest.raises(ConfigError, match=r"dev\.env cannot be written: No such file"),
        environment_file(path, []),
    ):
        pytest.fail("it was written")
