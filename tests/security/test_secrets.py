"""URLs and passwords: in no log, no error, no report, no process title."""

from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import redis
from psycopg2.extensions import parse_dsn

from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.harness import databases
from tests.harness.processes import Processes
from tests.harness.rows import hook_states, insert_leased
from tests.harness.waiting import eventually

DATABASE_SECRET = "db-secret/@:4711"  # noqa: S105 -- to be looked for
BROKER_SECRET = "broker-secret-4711"  # noqa: S105 -- as above
SECRETS = ("db-secret", quote(DATABASE_SECRET, safe=""))


@pytest.mark.timeout(300)
def test_passwords_are_shown_nowhere_while_servers_come_and_go(
    tmp_path: Path, own_postgres: EmbeddedPostgres, own_valkey: EmbeddedValkey, connect
):
    """Debug logs through outages with tracebacks, reports, remote control and process titles."""
    with redis.Redis.from_url(own_valkey.url) as broker:
        broker.config_set("requirepass", BROKER_SECRET)
    broker_url = own_valkey.url.replace("://", f"://:{BROKER_SECRET}@")
    url = own_postgres.dsn_for("postgres", tcp=True)
    dsn = url.replace("postgres@", f"postgres:{quote(DATABASE_SECRET, safe='')}@")
    assert parse_dsn(dsn)["password"] == DATABASE_SECRET
    processes = Processes(tmp_path, dsn, broker_url)
    try:
        debug = ("-l", "debug")
        fast = {"interval_seconds": 0.5}
        running = [
            processes.beat(*debug, **fast),
            processes.reap_worker(*debug, **fast).ready(),
            processes.hook_worker(*debug).ready(),
        ]
        insert_leased(connect(own_postgres.dsn), job_type="ok")
        eventually(lambda: hook_states(connect(own_postgres.dsn))["completed"] == 1, 60)
        asked = [
            processes.celery("inspect", "conf", "-t", "5"),
            processes.celery("inspect", "report", "-t", "5"),
            processes.celery("inspect", "stats", "-t", "5"),
            processes.celery("report"),
        ]
        for process in asked:
            assert process.wait(60) == 0, process.log
        titles = [
            " ".join(psutil.Process(pid).cmdline())
            for process in running
            for pid in [process.pid, *process.children()]
        ]

        own_postgres.stop()
        running[1].wait_for("cannot be reached", 60)
        own_valkey.stop()
        for process in running:
            process.wait_for("Connection refused", 60)
        late = processes.reap_worker(*debug)
        late.wait(60)

        for text in [*titles, *(process.log for process in [*running, *asked, late])]:
            assert text
            for secret in (*SECRETS, BROKER_SECRET):
                assert secret not in text
    finally:
        processes.end()
        own_valkey.start()


def test_a_refused_password_is_not_repeated(processes, dsn):
    """An authentication or parse error of the driver says whom it refused, not with what."""
    bad = f"postgresql://nobody_here:{quote(DATABASE_SECRET, safe='')}@/x?" + dsn.partition("?")[2]
    if "host=" not in bad:
        bad = databases.named(dsn, "no_such_database")
    command = processes.reaper("reap", REAPER_DATABASE_URL=bad)
    assert command.wait(60) in {1, 2}
    assert "cannot be reached" in command.log
    for secret in SECRETS:
        assert secret not in command.log
