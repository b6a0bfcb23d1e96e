"""Bad settings, missing or foreign schemas, a read-only database: told, not guessed at."""

import re

import psycopg2
import pytest

from tests.harness.databases import run
from tests.harness.processes import Process
from tests.harness.rows import dead_letter, fetch, hook_states, insert_leased, job
from tests.harness.waiting import eventually

COMMANDS = {
    "beat": ("celery", ("beat",)),
    "reap worker": ("celery", ("worker", "-Q", "reaper", "-c", "1")),
    "hook worker": ("celery", ("worker", "-Q", "terminal-hooks")),
    "flower": ("celery", ("flower", "--address=127.0.0.1", "--port=0")),
    "reap": ("reaper", ("reap",)),
    "migrate": ("reaper", ("migrate",)),
}

BAD = {
    "REAPER_INTERVAL_SECONDS": ("fast", "seconds between two reaps, from 0.1 to 86400"),
    "REAPER_CLAIM_BATCH_SIZE": ("10001", "a whole number from 1 to 10000"),
    "REAPER_RETRY_DELAY_MS": ("0", "a whole number from 1 to 2147483647"),
    "REAPER_HOOK_TIMEOUT_SECONDS": ("-1", "from 0.1 to 3600"),
    "REAPER_HOOK_KILL_GRACE_SECONDS": ("nan", "from 0.1 to 600"),
    "REAPER_HOOK_CONCURRENCY": ("9", "a whole number from 1 to 8"),
    "REAPER_HOOK_MAX_CRASHES": ("0", "a whole number from 1 to 100"),
    "REAPER_DRAIN_SECONDS": ("soon", "from 0 to 7200"),
    "REAPER_RETENTION_DAYS": ("0", "above 0 and up to 36500"),
    "REAPER_LOG_FORMAT": ("xml", "text or json"),
    "REAPER_HANDLERS": ("a b; c", "importable module names"),
    "REAPER_DATABASE_URL": ("mysql://u:hunter2@h/d", "a PostgreSQL URL"),
    "REAPER_BROKER_URL": ("bogus://:hunter2@h", "a broker URL Celery knows"),
}
"""Every variable with a value it does not take, and what its line says is allowed."""


def start(processes, command: str, **env) -> Process:
    kind, arguments = COMMANDS[command]
    return getattr(processes, kind)(*arguments, **env)


def told(process: Process) -> str:
    """The one line a start that failed says; nothing else may look like a fault."""
    assert process.wait(90) in {1, 2}, process.log
    (line,) = [line for line in process.log.splitlines() if line.startswith("reaper: ")]
    assert "Traceback" not in process.log
    assert "hunter2" not in process.log
    return line


def test_every_bad_setting_is_told_in_one_line_by_every_command(processes):
    """Case 39: all faults at once, each with name, masked value and what is allowed; no start."""
    values = {name: bad for name, (bad, _) in BAD.items()}
    for process in [start(processes, command, **values) for command in COMMANDS]:
        assert process.wait(90) == 2, process.log
        lines = process.log.splitlines()
        assert len(lines) == len(BAD), process.log
        for name, (bad, allowed) in BAD.items():
            (line,) = [line for line in lines if line.startswith(f"reaper: {name}=")]
            assert allowed in line
            assert bad.replace("hunter2", "***") in line
        assert "hunter2" not in process.log


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1,localhost:2/d", '"localhost"'),
        ("postgresql://u:hunter2@/d?nonsense=1", "libpq cannot read it"),
        ("host=/nowhere dbname=d password='hunter2'", "cannot be reached"),
    ],
)
def test_a_database_that_cannot_be_reached_ends_the_start_in_one_line(processes, url, said):
    """Case 39: an unreachable or malformed database URL: one line, status not zero."""
    for process in [
        start(processes, command, REAPER_DATABASE_URL=url)
        for command in ("reap worker", "hook worker", "reap", "migrate")
    ]:
        line = told(process)
        assert "REAPER_DATABASE_URL" in line
        assert said in line


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@127.0.0.1:1/0", "redis://:hunter2@no-such-host.invalid/0"]
)
def test_a_broker_that_cannot_be_reached_ends_the_start_in_one_line(processes, url):
    """Case 39: an unreachable broker: one line with the masked URL, status not zero."""
    for process in [
        start(processes, command, REAPER_BROKER_URL=url)
        for command in ("beat", "reap worker", "hook worker")
    ]:
        line = told(process)
        assert "REAPER_BROKER_URL='redis://:***@" in line
        assert "cannot be reached" in line


def test_a_missing_database_url_is_told(processes):
    """Case 39: what needs PostgreSQL says which variable is missing."""
    for process in [
        start(processes, command, REAPER_DATABASE_URL=None) for command in ("reap worker", "reap")
    ]:
        assert told(process).startswith("reaper: REAPER_DATABASE_URL is not set")


SCHEMAS = {
    "missing": ("DROP SCHEMA reaper CASCADE", "create it with `reaper migrate`"),
    "older": ("DELETE FROM reaper.schema_version", "upgrade it with `reaper migrate`"),
    "newer": (
        "INSERT INTO reaper.schema_version (version) VALUES (99)",
        "upgrade the package (`pip install --upgrade reaper`)",
    ),
}


@pytest.mark.parametrize("state", SCHEMAS)
def test_a_schema_of_another_version_ends_the_start_with_the_command_to_run(processes, dsn, state):
    """Case 40: no schema, an older or a newer one: a sentence that names the command to run."""
    spoil, cure = SCHEMAS[state]
    run(dsn, spoil)
    for process in [
        start(processes, command) for command in ("reap worker", "hook worker", "reap")
    ]:
        assert cure in told(process)


def test_a_read_only_database_fails_loudly_and_recovers_alone(processes, dsn, connect):
    """Case 41: failed reaps are told, no hook is sent for what was rolled back, then it works."""
    connection = connect()
    name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
    fast = {"interval_seconds": 0.3}
    reap = processes.reap_worker(**fast).ready()
    processes.hook_worker().ready()
    processes.beat(**fast)
    insert_leased(connection, job_type="ok")
    eventually(lambda: hook_states(connection)["completed"] == 1, 40)

    run(dsn, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    end_sessions_of_reaper(connection)
    job_ids = insert_leased(connection, 3, job_type="ok")  # an older session may still write
    refused = re.compile(r" reap_failed .*\(SQLSTATE 25006\).* read-only .* primary")
    eventually(lambda: len(refused.findall(reap.log)) >= 3, 60)
    assert hook_states(connection).total() == 1
    assert [job(connection, job_id)["status"] for job_id in job_ids] == ["LEASED"] * 3
    assert [dead_letter(connection, job_id) for job_id in job_ids] == [None] * 3
    assert fetch(connection, "SELECT count(*) AS n FROM effects") == [{"n": 1}]

    connection.cursor().execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')

    eventually(lambda: hook_states(connection)["completed"] == 4, 60)
    effects = fetch(connection, "SELECT job_id FROM effects WHERE what = 'ok'")
    assert len(effects) == len({row["job_id"] for row in effects}) == 4
    assert reap.is_running


def end_sessions_of_reaper(connection) -> None:
    fetch(
        connection,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'reaper%'",
    )
