"""`reaper doctor` on the broker and on who listens there: real workers, a real Redis."""

import json
import subprocess
import sys

import pytest
import redis

from tests.harness.waiting import eventually

_STRANGER = """
from celery import Celery
from kombu import Queue
app = Celery("stranger", broker={url!r})
app.conf.update(
    task_queues=[Queue("terminal-hooks")],
    broker_transport_options={{"global_keyprefix": "reaper:"}},
)
"""

_NO_PREFIX = 'broker_transport_options = {"global_keyprefix": ""}\n'


@pytest.fixture
def doctor(processes):
    """Run `reaper doctor --json`; return what each check found, and the exit status."""

    def run(url=None, **env):
        done = subprocess.run(
            [sys.executable, "-m", "reaper", "doctor", "--json"],
            env=processes.environment(**({"broker_url": url} if url else {}), **env),
            cwd=processes.directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        assert {"ok": 0, "warn": 1, "fail": 2}[document["status"]] == done.returncode
        return {check["id"]: check for check in document["checks"]}

    return run


def statuses(found, *ids):
    return {i: found[i]["status"] for i in ids}


ALIVE = ("beat", "reap-consumers", "hook-consumers", "hook-pool")


def test_doctor_sees_who_is_alive_and_who_is_not(doctor, processes, connect):
    """Nobody consumes the queues: fail. With beat and both workers: ok, handlers known."""
    assert statuses(doctor(), *ALIVE) == {
        "beat": "fail",
        "reap-consumers": "fail",
        "hook-consumers": "fail",
        "hook-pool": "ok",
    }

    beat = processes.beat(interval_seconds=0.5)
    processes.reap_worker(interval_seconds=0.5).ready()
    hooks = processes.hook_worker().ready()
    beat.wait_for("beat: Starting")

    found = eventually(
        lambda: (f := doctor()) and set(statuses(f, *ALIVE).values()) == {"ok"} and f, 60
    )
    assert "celerybeat@" in found["beat"]["found"]
    assert found["handlers"]["status"] == "warn"  # the tests' handlers, and no type defined yet
    assert "'blocks'" in found["handlers"]["found"]

    hooks.kill()
    found = doctor()
    assert found["hook-consumers"]["status"] == "fail"
    assert "does not answer: celery@hooks-" in found["hook-consumers"]["found"]


def test_doctor_finds_a_hook_worker_that_is_not_prefork(doctor, processes, broker_url):
    """Another application's worker on our queue keeps no limits; ours would not start like that."""
    (processes.directory / "stranger.py").write_text(_STRANGER.format(url=broker_url))
    worker = processes.python(
        *("-m", "celery", "-A", "stranger", "worker", "-P", "threads", "-c", "2", "-l", "INFO"),
        *("-n", "foreign"),
        PYTHONPATH=str(processes.directory),
    )
    worker.ready()

    found = doctor()["hook-pool"]

    assert found["status"] == "fail"
    assert "foreign" in found["found"]
    assert "pool thread" in found["found"]


def test_doctor_reads_what_only_redis_knows(doctor, broker_url):
    """Eviction warned of, persistence explained, both told by the server."""
    with redis.Redis.from_url(broker_url) as client:
        before = client.config_get("maxmemory-policy", "save")
        try:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("save", "3600 1")
            found = doctor()
        finally:
            for name, value in before.items():
                client.config_set(name, value)
    again = doctor()

    assert found["eviction-policy"]["status"] == "warn"
    assert "allkeys-lru" in found["eviction-policy"]["found"]
    assert "keeps its data" in found["persistence"]["found"]
    assert again["eviction-policy"]["status"] == "ok"
    assert again["persistence"]["status"] == "ok"
    assert "costs nothing here" in again["persistence"]["found"]


def test_doctor_finds_strangers_beside_keys_without_a_prefix(doctor, processes, broker_url):
    """Two Celery applications in one Redis database run each other's tasks twice."""
    with redis.Redis.from_url(broker_url) as client:
        client.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
    assert doctor()["key-prefix"]["status"] == "ok"
    (processes.directory / "celeryconfig.py").write_text(_NO_PREFIX)

    found = doctor()["key-prefix"]
    assert found["status"] == "fail"
    assert "_kombu.binding.celery" in found["found"]

    with redis.Redis.from_url(broker_url) as client:
        client.flushdb()
    processes.reap_worker().ready()
    processes.hook_worker().ready()
    found = doctor()["key-prefix"]
    assert found["status"] == "ok", found["found"]


def test_doctor_says_when_the_broker_is_away_or_hangs(doctor, own_valkey):
    """Away or frozen: a finding within a bounded time; the database is checked all the same."""
    own_valkey.pause()
    frozen = doctor(own_valkey.url)
    own_valkey.resume()
    own_valkey.stop()
    away = doctor(own_valkey.url)
    own_valkey.start()

    for found in (frozen, away):
        assert found["broker"]["status"] == "fail"
        assert "beat" not in found
        assert found["rights"]["status"] == "ok"
