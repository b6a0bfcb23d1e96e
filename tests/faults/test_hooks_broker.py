"""A broker that hangs, is away or restarts: the reap commits, and every hook goes out later."""

import signal
import time

import redis

from tests.faults.test_hooks_lost import FAST, all_completed, make_due, scaled
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


def _be_away(valkey, seconds: float, meanwhile) -> None:
    """Kill the broker and start it again after `seconds`."""
    valkey._end(signal.SIGKILL)
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
