"""The embedded servers: private, restartable on the same address, gone with their starter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg2
import pytest
import redis

from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.errors import ReaperError
from tests.harness.processes import ROOT
from tests.harness.waiting import eventually


def ask(dsn: str, text: str):
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchone() if cursor.description else None
    finally:
        connection.close()


def test_postgres_keeps_what_was_committed_over_a_crash_and_its_address():
    with EmbeddedPostgres() as server:
        dsn = server.dsn
        ask(dsn, "CREATE TABLE kept AS SELECT 1 AS n")
        first = server.pid
        server.restart("immediate")
        assert server.pid != first
        assert server.dsn == dsn
        assert ask(dsn, "SELECT n FROM kept") == (1,)


def test_postgres_leaves_neither_process_nor_directory_when_it_is_stopped():
    with EmbeddedPostgres() as server:
        pid, directory = server.pid, server.directory
    assert not psutil.pid_exists(pid)
    assert not directory.exists()


def test_postgres_keeps_a_given_directory_and_starts_on_it_again(tmp_path):
    place = tmp_path / "kept"
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    with EmbeddedPostgres(place) as server:
        ask(server.dsn, "CREATE TABLE kept AS SELECT 1 AS n")
    assert place.exists()
    with EmbeddedPostgres(place) as server:
        assert ask(server.dsn, "SELECT n FROM kept") == (1,)


def test_postgres_listens_on_tcp_only_where_it_is_asked_to(own_postgres):
    assert ask(own_postgres.dsn_for("postgres", tcp=True), "SELECT 1") == (1,)
    with EmbeddedPostgres() as server:
        assert ask(server.dsn, "SHOW listen_addresses") == ("",)
        with pytest.raises(ReaperError, match="tcp_port was not given"):
            server.dsn_for("postgres", tcp=True)


def test_postgres_says_why_it_did_not_start():
    with pytest.raises(ReaperError, match="shared_buffers"):
        EmbeddedPostgres(settings={"shared_buffers": "lots"}).start()
    with pytest.raises(ReaperError, match="there is no PostgreSQL in"):
        EmbeddedPostgres(bin_dir=Path("/nowhere")).start()


def test_valkey_keeps_its_address_and_forgets_or_keeps_as_told():
    with EmbeddedValkey(persistence=True) as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("kept", "1")
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"
        server.restart(keep_data=False)
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") is None
            client.set("kept", "2")
            server.flush()
            assert client.get("kept") is None


def test_valkey_has_its_data_loaded_when_a_restart_returns():
    with EmbeddedValkey() as server, redis.Redis.from_url(server.url, retry=None) as client:
        client.eval("for i = 1, 500000 do redis.call('SET', i, i) end", 0)  # takes a while to load
        server.restart()
        assert client.get("500000") == b"500000"


def test_valkey_does_not_answer_while_it_is_paused(own_valkey):
    own_valkey.pause()
    with redis.Redis.from_url(own_valkey.url, socket_timeout=0.3, retry=None) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own_valkey.resume()
        assert eventually(client.ping)


def test_servers_end_with_the_process_that_started_them_when_it_is_killed():
    """Nothing is left running, whatever ends the demo or a test run."""
    code = (
        "import time\n"
        "from reaper.embedded import EmbeddedPostgres, EmbeddedValkey\n"
        "with EmbeddedPostgres() as p, EmbeddedValkey() as v:\n"
        "    print(p.pid, v.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    assert len(pids) == 2
    eventually(lambda: not any(_runs(pid) for pid in pids), 60)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # nobody may be there to reap
    except psutil.NoSuchProcess:
        return False
