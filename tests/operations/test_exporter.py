"""`reaper exporter`: scraped as Prometheus does, while its servers live, hang and die."""

import os
import re
import shutil
import signal
import subprocess
import threading
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from reaper.operations import pruning
from reaper.reap import run_tick
from reaper.store import Database
from tests.harness.rows import fetch, insert_hook, insert_leased
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[2]


def get(address, path, accept="text/plain"):
    """Return (status, body)."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def scrape(address):
    """Return the metrics as {(name, sorted label values): value}."""
    status, body = get(address, "/metrics")
    assert status == 200
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def start(processes, **env):
    """Start an exporter on a free port; return it and its address."""
    running = processes.reaper("exporter", "--port", "0", **env)
    running.wait_for("/metrics", 60)
    return running, re.search(r"http://[\d.]+:\d+", running.log)[0]


def end_hook(connection, state, **columns):
    """A hook that ended 100 s ago, after 0.3 s."""
    hook_id = insert_hook(connection, state=state, **columns)
    fetch(
        connection,
        "UPDATE reaper.terminal_hooks SET finished_at = now() - interval '100 s',"
        " started_at = now() - interval '100.3 s' WHERE hook_id = %s RETURNING 1",
        (hook_id,),
    )


def test_metrics_tell_what_is_in_the_database_and_the_broker(
    processes, database, settings, connect
):
    """Each metric, by its value; counters survive a restart and pruning."""
    connection = connect()
    insert_leased(connection, 2, job_type="mail")
    insert_leased(connection, 1, job_type="mail", max_attempts=5)
    run_tick(database, settings(), lambda _: True, quiet_seconds=0)
    insert_leased(connection, 3, expired_seconds=-500)
    insert_leased(connection, 2, expired_seconds=100)
    for state in ("completed", "completed", "failed", "unhandled"):
        end_hook(connection, state, job_type="mail")
    fetch(
        connection,
        "UPDATE reaper.terminal_hooks SET owed_since = now() - interval '1 h'"
        " WHERE state = 'pending' RETURNING 1",
    )
    fetch(connection, "INSERT INTO reaper.hook_types VALUES ('fax', 3, now()) RETURNING 1")
    running, address = start(processes)

    seen = scrape(address)

    assert seen["reaper_database_up",] == seen["reaper_broker_up",] == 1
    assert (seen["reaper_live_leases",], seen["reaper_expired_leases",]) == (3, 2)
    assert 100 <= seen["reaper_oldest_expired_lease_seconds",] < 200
    assert 0 < seen["reaper_last_tick_age_seconds",] < 100
    assert seen["reaper_ticks_total",] == 1
    assert seen["reaper_reaped_total", "dead_lettered", "mail"] == 2
    assert seen["reaper_reaped_total", "mail", "retried"] == 1
    assert seen["reaper_reaped_total", "mail", "released"] == 0
    assert seen["reaper_deferred_rows",] == 0
    assert seen["reaper_hooks", "mail", "pending"] == 2
    assert seen["reaper_hooks", "failed", "mail"] == 1
    assert 3600 <= seen["reaper_oldest_pending_hook_seconds",] < 3700
    assert seen["reaper_hook_type_throttled", "fax"] == 1
    assert seen["reaper_hooks_finished_total", "completed", "mail"] == 2
    assert seen["reaper_hooks_finished_total", "demo", "failed"] == 0  # there before the first one
    assert seen["reaper_hook_duration_seconds_count", "mail"] == 3  # nothing ran where unhandled
    assert seen["reaper_hook_duration_seconds_bucket", "0.25", "mail"] == 0
    assert seen["reaper_hook_duration_seconds_bucket", "0.5", "mail"] == 3
    assert seen["reaper_hook_duration_seconds_sum", "mail"] == pytest.approx(0.9)
    assert seen["reaper_queue_messages", "terminal-hooks"] == 0

    running.terminate()
    assert running.wait() == 0
    assert pruning.prune(database, retention_days=0.001).pruned == 4
    _, address = start(processes)
    again = scrape(address)
    kept = [key for key in seen if key[0].startswith(("reaper_hooks_finished", "reaper_hook_dur"))]
    assert {key: again[key] for key in kept} == {key: seen[key] for key in kept}
    assert ("reaper_hooks", "failed", "mail") not in again


def test_healthz_tells_why_nothing_is_reaped(processes, database, settings, connect):
    """The dead-man's switch: 503 before the first tick, 200 while they are fresh, 503 after."""
    _, address = start(processes, interval_seconds=20)
    assert get(address, "/healthz")[0] == 503
    assert "no tick ever finished" in get(address, "/healthz")[1]

    run_tick(database, settings(), lambda _: True, quiet_seconds=0)
    eventually(lambda: get(address, "/healthz") == (200, "ok\n"), 20)

    fetch(
        connect(),
        "UPDATE reaper.ticks SET started_at = now() - interval '61 s',"
        " finished_at = now() - interval '61 s' RETURNING 1",
    )
    eventually(lambda: get(address, "/healthz")[0] == 503, 20)
    assert "nothing is reaped" in get(address, "/healthz")[1]
    assert get(address, "/nothing")[0] == 404
    assert get(address, "/")[0] == 200


def test_scrapes_at_once_are_all_answered(processes, database, settings, connect):
    """Any number of scrapes share one reading: few connections, every answer whole."""
    run_tick(database, settings(), lambda _: True, quiet_seconds=0)
    _, address = start(processes)
    answers = []

    def ask():
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            status, body = get(address, "/metrics", accept)
            parse = open_metrics if "openmetrics" in accept else text_string_to_metric_families
            answers.append((status, len(list(parse(body)))))

    threads = [threading.Thread(target=ask) for _ in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(answers) == 50
    assert len(set(answers)) == 1
    connected = fetch(
        connect(),
        "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'reaper exporter'",
    )
    assert connected[0]["n"] == 1


@pytest.mark.slow
def test_the_exporter_answers_while_its_servers_hang_and_die(
    processes, own_postgres, own_valkey, settings
):
    """Away or frozen: `_up` is 0, /healthz says 503 and why, and all is well again afterwards."""
    own = processes.at(dsn=own_postgres.dsn, broker_url=own_valkey.url)
    _, address = start(own, interval_seconds=3600)
    run_tick(
        Database(own_postgres.dsn),
        settings(database_url=own_postgres.dsn),
        lambda _: True,
        quiet_seconds=0,
    )
    eventually(lambda: get(address, "/healthz")[0] == 200, 30)

    def is_up(part, value):
        return scrape(address)[f"reaper_{part}_up",] == value

    own_valkey.pause()
    eventually(lambda: is_up("broker", 0), 40)
    assert get(address, "/healthz")[0] == 503
    assert "the broker" in get(address, "/healthz")[1]
    assert is_up("database", 1)
    own_valkey.resume()
    eventually(lambda: get(address, "/healthz")[0] == 200, 40)

    frozen = _backends(own_postgres)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: is_up("database", 0), 40)
        assert "PostgreSQL did not answer within" in get(address, "/healthz")[1]
        assert is_up("broker", 1)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: get(address, "/healthz")[0] == 200, 40)

    own_postgres.restart("immediate")
    eventually(lambda: get(address, "/healthz")[0] == 200, 40)


def _backends(server):
    parent = psutil.Process(server.pid)
    return [parent.pid, *(child.pid for child in parent.children(recursive=True))]


def test_the_exporter_says_what_it_cannot_do(processes):
    """A taken port, a bad address: a sentence and status 2."""
    _, address = start(processes)
    port = address.rpartition(":")[2]

    taken = processes.reaper("exporter", "--port", port)
    nowhere = processes.reaper("exporter", "--address", "192.0.2.1", "--port", "0")

    assert (taken.wait(60), nowhere.wait(60)) == (2, 2)
    assert f"cannot listen on 127.0.0.1 port {port}" in taken.log
    assert "choose another --address or --port" in nowhere.log


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_alert_rules_are_what_prometheus_takes(tmp_path):
    """The rules parse, and fire and stay silent on given numbers."""
    shutil.copy(ROOT / "deploy/prometheus/rules.yml", tmp_path)
    shutil.copy(ROOT / "tests/operations/rules_test.yml", tmp_path)
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_alert_rules_use_metrics_and_runbook_entries_that_exist(processes, connect):
    """Each metric in a rule is exported, each runbook link has its heading."""
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text()
    _, address = start(processes)
    exported = re.findall(r"^# TYPE (\w+)", get(address, "/metrics")[1], re.MULTILINE)
    for name in set(re.findall(r"\breaper_\w+", rules)):
        assert name in exported
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}
    for anchor in set(re.findall(r"operations\.md#([\w-]+)", rules)):
        assert anchor in anchors
