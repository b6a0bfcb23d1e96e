"""Beat in trouble: several at once, a pile of messages, killed at any point, a corrupt file."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import redis

from reaper.celery import REAP_TASK, app
from tests.harness.rows import fetch, hook_states, insert_leased
from tests.harness.waiting import eventually

SOAK = bool(os.environ.get("REAPER_TEST_SOAK"))
SCALE = 10 if SOAK else 1

GARBAGE = {
    "text": b"not a shelf",
    "empty": b"",
    "zeros": bytes(4096),
    "cut off": b"SQLite format 3\x00",
}


def ticks(connection) -> int:
    return fetch(connection, "SELECT ticks FROM reaper.ticks")[0]["ticks"]


def begun(connection):
    return fetch(connection, "SELECT started_at FROM reaper.ticks")[0]["started_at"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_beats_and_three_workers_reap_as_one_would(processes, connect):
    """Case 36: three beats, three reap workers: the same result as with one beat, 1:10 here."""
    connection = connect()
    exhausted = insert_leased(connection, 400 * SCALE, job_type="ok", max_attempts=1)
    retried = insert_leased(connection, 600 * SCALE, job_type="ok", max_attempts=3)
    interval = 1.0 if SOAK else 0.3
    for _ in range(3):
        processes.beat(interval_seconds=interval, claim_batch_size=50)
        processes.reap_worker(interval_seconds=interval, claim_batch_size=50)
    processes.hook_worker()
    if SOAK:
        deadline = time.monotonic() + 120
        eventually(lambda: time.monotonic() > deadline, 130)
    eventually(lambda: hook_states(connection)["completed"] == len(exhausted), 120 * SCALE)
    seen = ticks(connection)
    eventually(lambda: ticks(connection) > seen + 3)  # further ticks change nothing

    states = Counter(
        {
            row["status"]: row["n"]
            for row in fetch(
                connection, "SELECT status::text, count(*) AS n FROM job_queue GROUP BY 1"
            )
        }
    )
    assert states == {"DEAD_LETTERED": len(exhausted), "PENDING": len(retried)}
    once = "SELECT count(*) AS n, count(DISTINCT job_id) AS ids FROM {}"
    for table, wanted in (
        ("job_dead_letters", len(exhausted)),
        ("reaper.terminal_hooks", len(exhausted)),
        ("effects", len(exhausted)),
    ):
        assert fetch(connection, once.format(table)) == [{"n": wanted, "ids": wanted}], table
    events = fetch(connection, once.format("job_events"))  # FAILED and what followed from it
    assert events == [{"n": 2 * len(exhausted + retried), "ids": len(exhausted + retried)}]
    totals = fetch(connection, "SELECT sum(total) AS n FROM reaper.tick_totals")
    assert totals == [{"n": len(exhausted) + len(retried)}]


def test_a_pile_of_reap_messages_costs_one_or_two_reaps(processes, connect, monkeypatch):
    """Case 37: 300 reap messages wait: when the worker starts one or two work, the rest return."""
    connection = connect()
    job_ids = insert_leased(connection, 30, job_type="ok", max_attempts=3)
    monkeypatch.setitem(app.conf, "broker_url", processes.broker_url)
    with app.connection_for_write(processes.broker_url) as broker:
        with app.amqp.Producer(broker) as producer:
            for _ in range(300):
                app.send_task(REAP_TASK, queue="reaper", producer=producer)
        waiting = redis.Redis.from_url(processes.broker_url)
        assert waiting.llen("reaper:reaper") == 300

    # Half of this interval is the quiet time: longer than the pile takes, even on a busy machine.
    worker = processes.reap_worker(interval_seconds=240)
    eventually(lambda: waiting.llen("reaper:reaper") == 0, 90)
    eventually(lambda: waiting.hlen("reaper:unacked") == 0, 30)
    waiting.close()

    assert 1 <= ticks(connection) <= 2
    assert worker.log.count("tick_finished") == 1
    left = fetch(connection, "SELECT count(*) AS n FROM job_queue WHERE status = 'LEASED'")
    assert left == [{"n": 0}]
    retried = "SELECT count(*) AS n FROM job_events WHERE event_type = 'RETRY_SCHEDULED'"
    assert fetch(connection, retried) == [{"n": len(job_ids)}]


def test_beat_fires_whenever_it_was_killed_before(processes, connect):
    """Case 38: there is no schedule file; SIGKILL leaves nothing that stops the next beat."""
    connection = connect()
    processes.reap_worker(interval_seconds=0.2).ready()
    for seed in range(4):
        beat = processes.beat(interval_seconds=0.2)
        if seed % 2:
            before = begun(connection)
            eventually(lambda before=before: begun(connection) != before, 40)
        delay = time.monotonic() + random.Random(seed).uniform(0, 2)
        eventually(lambda delay=delay: time.monotonic() > delay, 30, every=0.01)
        beat.kill()
    before = begun(connection)
    processes.beat(interval_seconds=0.2)

    eventually(lambda: begun(connection) != before, 40)
    assert not list(processes.directory.glob("celerybeat-schedule*"))


@pytest.mark.parametrize("garbage", GARBAGE)
def test_beat_fires_beside_a_corrupt_schedule_file(processes, connect, garbage):
    """Case 38: a corrupt or empty celerybeat-schedule is not read, and not touched."""
    connection = connect()
    schedule = Path(processes.directory, "celerybeat-schedule")
    schedule.write_bytes(GARBAGE[garbage])
    before = begun(connection)
    processes.reap_worker(interval_seconds=0.2)
    processes.beat("-s", str(schedule), interval_seconds=0.2)

    eventually(lambda: begun(connection) != before, 40)
    assert schedule.read_bytes() == GARBAGE[garbage]


def test_beat_reaps_at_once_when_it_starts(processes, connect):
    """The first reap does not wait for the interval, as in the original."""
    connection = connect()
    insert_leased(connection, job_type="ok")
    processes.reap_worker(interval_seconds=3600)
    processes.beat(interval_seconds=3600)
    eventually(lambda: hook_states(connection).total() == 1, 60)


def test_beat_answers_a_ping(processes):
    """Remote control is on, so that a supervisor can ask whether beat is alive."""
    processes.beat().wait_for("beat pidbox: Connected", 40)
    for _ in range(5):
        ping = processes.celery("inspect", "ping", "-t", "3")
        if ping.wait(60) == 0:
            break
    assert "celerybeat@" in ping.log


def test_beat_works_again_after_its_broker_was_away(processes, connect, own_valkey):
    """Case 33, beat's half: no restart is needed when Redis comes back."""
    connection = connect()
    here = processes.at(broker_url=own_valkey.url)
    beat = here.beat(interval_seconds=0.3)
    worker = here.reap_worker(interval_seconds=0.3).ready()
    eventually(lambda: ticks(connection) > 2, 40)
    own_valkey.stop()
    beat.wait_for("Connection error", 40)
    own_valkey.start()
    before = ticks(connection)

    eventually(lambda: ticks(connection) > before + 2, 90)
    assert beat.is_running
    assert worker.is_running
