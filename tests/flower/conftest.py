"""One stage for all tests here: beat, both workers and Flower, and a job of each kind that dies."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import psycopg2
import pytest
import redis

from reaper.embedded import EmbeddedValkey
from tests.harness import databases
from tests.harness.processes import Process, Processes
from tests.harness.rows import hook_states, hooks, insert_leased
from tests.harness.waiting import eventually

BROKER_PASSWORD = "broker-secret-word"  # noqa: S105 -- to be looked for in what Flower says
DATABASE_PASSWORD = "database-secret-word"  # noqa: S105 -- as above; the server trusts everybody
FLOWER_LOGIN = "reader:flower-secret-word"
PAYLOAD = "payload-secret-word"

JOB_TYPES = ("ok", "raises", "sleeps", "blocks")
"""Handlers that return, raise, run into the soft limit and run into the hard limit."""

FINAL = ("SUCCESS", "FAILURE")


class FlowerApi:
    """Asks a running Flower, over HTTP and with its login."""

    def __init__(self, process: Process) -> None:
        process.wait_for("Visit me at", 60)
        found = re.search(r"Visit me at http://127\.0\.0\.1:(\d+)", process.log)
        assert found, process.log
        self._port = int(found[1])

    def text(self, path: str) -> str:
        """Return the page or answer at `path`."""
        login = base64.b64encode(FLOWER_LOGIN.encode()).decode()
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == HTTPStatus.OK, (path, answer.status, text)
        return text

    def json(self, path: str) -> Any:
        """Return the decoded answer at `path`."""
        return json.loads(self.text(path))

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return what it knows of the tasks of that name."""
        return list(self.json(f"/api/tasks?limit=10000&taskname={name}").values())


@dataclass(frozen=True)
class Stage:
    """What the tests read."""

    flower: FlowerApi
    ledger: dict[str, dict[str, Any]]
    """Ledger rows by job type."""
    hook_tasks: dict[str, list[dict[str, Any]]]
    """Flower's hook tasks by job type."""


@pytest.fixture(scope="module")
def stage(
    admin_dsn: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Let one job of each type die, and wait until Flower has seen every hook end."""
    with EmbeddedValkey(persistence=False) as valkey, databases.fresh(admin_dsn, template) as dsn:
        with redis.Redis.from_url(valkey.url) as client:
            client.config_set("requirepass", BROKER_PASSWORD)
        broker_url = valkey.url.replace("://", f"://:{BROKER_PASSWORD}@")
        parts = {"password": DATABASE_PASSWORD} | psycopg2.extensions.parse_dsn(dsn)
        secret_dsn = psycopg2.extensions.make_dsn(**parts)
        processes = Processes(tmp_path_factory.mktemp("flower"), secret_dsn, broker_url)
        try:
            yield _play(processes, dsn)
        finally:
            processes.end()


def _play(processes: Processes, dsn: str) -> Stage:
    limits = {"hook_timeout_seconds": 1, "hook_kill_grace_seconds": 0.5, "hook_concurrency": 4}
    workers = [
        processes.hook_worker("-l", "INFO", **limits),
        processes.reap_worker("-l", "INFO", interval_seconds=0.5),
    ]
    page = processes.celery(
        "flower",
        "--address=127.0.0.1",
        "--port=0",
        database_url=None,
        FLOWER_BASIC_AUTH=FLOWER_LOGIN,
    )
    for worker in workers:
        worker.ready(60)
    flower = FlowerApi(page)
    eventually(lambda: len(flower.json("/api/workers?refresh=1")) == 2, 30, every=0.5)
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    try:
        for job_type in JOB_TYPES:
            insert_leased(connection, job_type=job_type, payload=json.dumps({"word": PAYLOAD}))
        processes.beat(interval_seconds=0.5, database_url=None)
        eventually(lambda: _are_over(hook_states(connection)), 60)
        ledger = {row["job_type"]: row for row in hooks(connection)}
    finally:
        connection.close()
    seen = eventually(lambda: _ended(flower), 30, every=0.2)
    return Stage(flower, ledger, seen)


def _are_over(states: dict[str, int]) -> bool:
    return states["completed"] + states["failed"] + states["timed_out"] == len(JOB_TYPES)


def _ended(flower: FlowerApi) -> dict[str, list[dict[str, Any]]]:
    """Return the hooks by job type once Flower has seen one of each end; else nothing."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task in flower.tasks("reaper.terminal_hook"):
        for job_type in JOB_TYPES:
            if task["state"] in FINAL and (task["args"] or "").startswith(f"({job_type} "):
                found.setdefault(job_type, []).append(task)
    return found if len(found) == len(JOB_TYPES) else {}
