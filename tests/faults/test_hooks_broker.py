"""A broker that hangs, is away or restarts: the reap commits, and every hook goes out later."""

import signal
import time

import pytest
import redis

from reaper.embedded import EmbeddedValkey
from tests.faults.test_hooks_lost import FAST, all_completed, make_due, scaled
from tests.harness.brokers import demoted, drop_connections, full
from tests.harness.rows import effects, fetch, hook_states, insert_leased
from tests.harness.waiting import eventually
from tests.publishing.test_gives_up import PROMISED_SECONDS, SLACK_SECONDS, doorbell

OPEN = """
SELECT count(*) AS n FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    AND clock_timestamp() - xact_start > interval '0.5 s'
"""


def test_reap_commits_and_holds_no_transaction_open_when_the_broker_hangs(
    processes, connect, own_valkey
):
    """Case 32: gives up publishing in 5 s at most, and the hooks go out later."""
    connection = connect()
    insert_leased(connection, 300, job_type="ok")
    here = processes.at(broker_url=own_valkey.url)
    own_valkey.pause()
    reap = here.reaper("reap", claim_batch_size=100)
    eventually(lambda: hook_states(connection)["pending"] >= 100, 60)
    began, longest = time.monotonic(), 0
    while reap.is_running:
        longest = max(longest, fetch(connection, OPEN)[0]["n"])
        assert time.monotonic() - began < PROMISED_SECONDS + SLACK_SECONDS + 20  # and its end
        time.sleep(0.05)
    assert reap.wait(1) == 0
    assert longest == 0
    assert hook_states(connection) == {"pending": 300}
    due = "SELECT count(*) AS n FROM reaper.terminal_hooks WHERE due_at < clock_timestamp()"
    assert fetch(connection, due)[0]["n"] == 300  # what was not surely sent is due at once
    own_valkey.resume()
    here.beat(**FAST)
    here.reap_worker(**FAST)
    here.hook_worker()
    eventually(lambda: all_completed(connection, 300), 90)


def test_everything_works_again_without_a_restart_when_the_broker_was_away(
    processes, connect, own_valkey
):
    """Case 33: Redis away for 60 s, under load and idle: beat and workers outlive it."""
    connection = connect()
    here = processes.at(broker_url=own_valkey.url)
    started = [here.beat(**FAST), here.reap_worker(**FAST), here.hook_worker()]
    insert_leased(connection, 50, job_type="ok")
    eventually(lambda: all_completed(connection, 50), 90)
    _be_away(own_valkey, scaled(60), lambda: insert_leased(connection, 50, job_type="ok"))
    eventually(lambda: all_completed(connection, 100), 120, every=0.2)
    _be_away(own_valkey, scaled(60), lambda: None)
    insert_leased(connection, 5, job_type="ok")
    eventually(lambda: all_completed(connection, 105), 120, every=0.2)
    assert all(process.is_running for process in started)
    assert len(effects(connection, "ok")) == 105


def test_everything_works_again_without_a_restart_when_the_broker_restarted_five_times(
    processes, connect, own_valkey
):
    """Case 33: five restarts in a minute."""
    connection = connect()
    here = processes.at(broker_url=own_valkey.url)
    started = [here.beat(**FAST), here.reap_worker(**FAST), here.hook_worker()]
    for process in started[1:]:
        process.ready()
    for _ in range(5):
        insert_leased(connection, 20, job_type="ok")
        own_valkey.restart()
        time.sleep(scaled(12))  # five in a minute: the distance is the case
    eventually(lambda: make_due(connection) or all_completed(connection, 100), 120, every=1)
    assert all(process.is_running for process in started)
    assert len(effects(connection, "ok")) == 100


def _be_full(valkey) -> None:
    with full(valkey):
        time.sleep(scaled(40))  # the length of the trouble is the case


def _be_demoted(valkey) -> None:
    with demoted(valkey):
        time.sleep(scaled(40))  # the length of the trouble is the case


def _die(valkey) -> None:
    _be_away(valkey, scaled(20), lambda: None)


@pytest.mark.parametrize("trouble", [_die, drop_connections, _be_full, _be_demoted])
def test_no_process_ends_and_no_hook_runs_twice_when_the_broker_fails_while_hooks_run(
    processes, connect, own_valkey, trouble
):
    """Case 33: four of eight slots are taken for long, the others take message after message."""
    connection = connect()
    here = processes.at(broker_url=own_valkey.url)
    started = [here.beat(**FAST), here.reap_worker(**FAST).ready(), here.hook_worker().ready()]
    insert_leased(connection, 4, job_type="slow", payload='{"seconds": 5}')
    eventually(lambda: len(effects(connection, "begin")) == 4)
    insert_leased(connection, 300, job_type="ok")
    eventually(lambda: effects(connection, "ok"))
    trouble(own_valkey)
    insert_leased(connection, 10, job_type="ok")
    eventually(lambda: make_due(connection) or all_completed(connection, 314), 90, every=0.5)
    assert all(process.is_running for process in started)
    assert [len(effects(connection, what)) for what in ("begin", "end", "ok")] == [4, 4, 310]


@pytest.mark.parametrize("running", [1, 8])
def test_running_hooks_are_acknowledged_and_the_worker_goes_on_when_the_broker_was_away(
    processes, connect, running
):
    """Case 33: a broker that kept its data delivers none of them again."""
    connection = connect()
    with EmbeddedValkey() as valkey, redis.Redis.from_url(valkey.url) as client:
        here = processes.at(broker_url=valkey.url)
        worker = here.hook_worker().ready()
        insert_leased(connection, running, job_type="slow", payload='{"seconds": 5}')
        assert here.reaper("reap").wait(60) == 0
        eventually(lambda: len(effects(connection, "begin")) == running)
        _be_away(valkey, scaled(20), lambda: None, by=signal.SIGTERM)
        assert client.hlen("reaper:unacked") == running
        eventually(lambda: client.hlen("reaper:unacked") == 0)
        insert_leased(connection, 1, job_type="ok")
        assert here.reaper("reap").wait(60) == 0
        eventually(lambda: all_completed(connection, running + 1), 30)
        assert worker.is_running


def _be_away(valkey, seconds: float, meanwhile, by: signal.Signals = signal.SIGKILL) -> None:
    """End the broker and start it again after `seconds`."""
    valkey._end(by)
    meanwhile()
    time.sleep(seconds)  # the length of the outage is the case
    valkey.start()


def test_redis_grows_by_messages_only_when_payloads_are_large(processes, connect, own_valkey):
    """Case 34: a 1 MB payload in each of 1,000 dead letters: Redis grows by less than 5 MB."""
    connection = connect()
    count = round(scaled(1_000))
    insert_leased(connection, count, job_type="ok", payload='{"text": "%s"}' % ("x" * 1_000_000))
    here = processes.at(broker_url=own_valkey.url)
    with redis.Redis.from_url(own_valkey.url) as client:
        before = client.info("memory")["used_memory"]
        reap = here.reaper("reap")
        assert reap.wait(120) == 0
        grown = client.info("memory")["used_memory"] - before
    assert hook_states(connection) == {"pending": count}
    assert doorbell(own_valkey.url).count_messages() == count
    assert grown < 5_000 * count + 100_000  # 5 MB for a thousand, and the client's own buffers
    here.hook_worker("-c", "2")
    eventually(lambda: all_completed(connection, count), 120)
