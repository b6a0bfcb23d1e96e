"""Everything through pgbouncer in transaction mode: each transaction meets another session."""

import getpass
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reaper import LeaseLost, leases
from reaper.config import Settings
from reaper.embedded import EmbeddedPostgres
from reaper.store import Database
from tests.harness import databases, rows
from tests.harness.processes import Processes
from tests.harness.waiting import eventually
from tests.reap.conftest import Tick

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"

POOL = 3
"""Fewer server sessions than clients, so that they are shared all the time."""

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 200
server_round_robin = 1
"""


@pytest.fixture
def direct_dsn(postgres: EmbeddedPostgres) -> Iterator[str]:
    """URL of a migrated database over TCP."""
    with databases.fresh(postgres.dsn) as url:
        databases.prepare(url)
        yield postgres.dsn_for(url.partition("@/")[2].partition("?")[0], tcp=True)


@pytest.fixture
def dsn(direct_dsn: str, tmp_path: Path) -> Iterator[str]:
    """URL of the same database through pgbouncer in transaction mode."""
    if not Path(PGBOUNCER).exists():
        pytest.skip("no pgbouncer on this machine: apt-get install pgbouncer")
    server_port = direct_dsn.rpartition(":")[2].partition("/")[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = tmp_path / "pgbouncer.ini"
    configuration.write_text(CONFIGURATION.format(server_port=server_port, port=port, pool=POOL))
    url = direct_dsn.replace(f":{server_port}/", f":{port}/")
    started = Processes(tmp_path, url, "memory://")
    as_user = ["-u", "nobody"] if getpass.getuser() == "root" else []
    bouncer = started.run([PGBOUNCER, *as_user, str(configuration)])
    try:
        bouncer.wait_for("process up")
        yield url
    finally:
        started.end()


@pytest.fixture
def connection(connect: Callable[..., Any], direct_dsn: str) -> Any:
    return connect(direct_dsn)


def test_ticks_and_leases_of_many_clients_share_a_few_sessions(
    dsn: str, settings: Callable[..., Settings], connection: Any
) -> None:
    """case 18: reaps, poison and leases: nothing depends on a session, and none is left changed."""
    rows.insert_leased(connection, 60, max_attempts=1)
    rows.insert_leased(connection, 60, max_attempts=2)
    bad = rows.insert_leased(connection, 2, expired_seconds=90)
    rows.fetch(connection, "UPDATE job_queue SET attempt = 0 WHERE id = ANY (%s::uuid[])", (bad,))
    leases.define_job_type(Database(dsn), "work", max_attempts=2)

    def reap(_number: int) -> tuple[int, int]:
        tick = Tick(Database(dsn), settings)
        result = tick(claim_batch_size=5)
        tick.database.close()
        return result.processed, len(result.deferred)

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work, dsn) for _ in range(4)]
        reaped = list(pool.map(reap, range(4)))
        assert [worker.result() for worker in working] == [None] * 4
    assert Tick(Database(dsn), settings)().processed + sum(n for n, _ in reaped) == 120
    found = rows.fetch(connection, "SELECT job_id FROM reaper.deferred")
    assert {row["job_id"] for row in found} == set(bad)
    owed = Counter(hook["job_type"] for hook in rows.hooks(connection))
    assert owed == {"demo": 60, "work": 4}
    check_sessions(dsn, connection)


def work(dsn: str) -> None:
    """A lease holder's whole life: claim, heartbeat, start, progress, succeed; and a death."""
    database = Database(dsn)
    for ends_well in (True, False):
        leases.enqueue(database, "work", {})
        # Another holder may have this one's job in its hands for a moment, and then leave its own.
        claim = partial(leases.claim, database, "w1", lease_seconds=60, job_types=["work"])
        (lease,) = eventually(claim)
        leases.heartbeat(database, lease)
        leases.start(database, lease)
        leases.progress(database, lease, done=1, total=2)
        if ends_well:
            leases.succeed(database, lease)
            with pytest.raises(LeaseLost):
                leases.succeed(database, lease)
        else:
            assert leases.fail(database, lease, kind=leases.JobFailureKind.TERMINAL)
    database.close()


def check_sessions(dsn: str, connection: Any) -> None:
    """No session of the pool keeps a limit of ours, an open transaction or a lock."""
    text = "SELECT pid, state FROM pg_stat_activity WHERE datname = current_database()"
    others = [row for row in rows.fetch(connection, text) if row["state"] != "active"]
    assert 0 < len(others) <= POOL
    assert {row["state"] for row in others} == {"idle"}
    outside = Database(dsn)
    for name in ("statement_timeout", "lock_timeout", "transaction_isolation"):
        found = {outside_show(dsn, name) for _ in range(POOL * 2)}
        assert found == {"0" if name.endswith("timeout") else "read committed"}
    outside.close()
    held = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'"
    assert rows.fetch(connection, held) == [{"n": 0}]


def outside_show(dsn: str, name: str) -> str:
    import psycopg2  # noqa: PLC0415 -- a bare client, not the store's

    client = psycopg2.connect(dsn)
    client.autocommit = True
    try:
        return str(rows.fetch(client, f"SHOW {name}")[0][name])
    finally:
        client.close()


@pytest.mark.slow
def test_workers_deliver_hooks_plain_and_transactional(
    processes: Processes, connection: Any, dsn: str
) -> None:
    """case 18: beat, reap worker, hook worker and transactional handlers on shared sessions."""
    ids = rows.insert_leased(connection, 40, job_type="together")
    failing = rows.insert_leased(connection, 5, job_type="together", payload='{"fails": true}')
    rows.insert_leased(connection, 20, job_type="tells")
    there = processes.at(dsn=dsn)
    there.hook_worker(handlers="tests.faults.handlers_reap")
    there.reap_worker(interval_seconds=0.5)
    there.beat(interval_seconds=0.5)
    done = {"completed": 60, "failed": len(failing)}
    eventually(lambda: rows.hook_states(connection) == done, seconds=90)
    runs = Counter(effect["job_id"] for effect in rows.effects(connection, "together"))
    assert runs == dict.fromkeys(ids, 1)
    check_sessions(dsn, connection)
