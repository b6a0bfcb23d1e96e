"""What the broker may tell a worker, and what it gets to see."""

import base64
import json
import pickle
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from kombu import Connection, Exchange, Producer

from tests.harness.rows import fetch, hook_states, insert_leased
from tests.harness.waiting import eventually

SECRET = "payload-secret-4711"  # noqa: S105 -- to be looked for
OPTIONS = {"global_keyprefix": "reaper:"}
TASKS = {"reaper": "reaper.reap", "terminal-hooks": "reaper.terminal_hook"}


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def publish(url: str, queue: str, body: bytes, content_type: str) -> None:
    headers = {"task": TASKS[queue], "id": "evil", "lang": "py", "argsrepr": "", "kwargsrepr": ""}
    with Connection(url, transport_options=OPTIONS) as connection:
        Producer(connection, exchange=Exchange("")).publish(
            body,
            routing_key=queue,
            content_type=content_type,
            content_encoding="binary",
            headers=headers,
            correlation_id="evil",
        )


@pytest.mark.parametrize("queue", TASKS)
def test_messages_that_are_not_json_are_refused_and_run_nothing(
    processes, broker_url, connect, tmp_path: Path, queue
):
    """Only json is accepted from the broker: pickle and yaml do nothing, the worker goes on."""
    connection = connect()
    start = processes.reap_worker if queue == "reaper" else processes.hook_worker
    worker = start().ready()
    touched = tmp_path / "touched"
    evil = (
        f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{touched}]]"
    )

    pickled = pickle.dumps((Touch(touched), {}, {}))
    publish(broker_url, queue, pickled, "application/x-python-serialize")
    publish(broker_url, queue, evil.encode(), "application/x-yaml")
    publish(broker_url, queue, b"{not json", "application/json")
    publish(broker_url, queue, pickled, "application/json")

    with redis.Redis.from_url(broker_url) as broker:
        eventually(lambda: broker.llen(f"reaper:{queue}") == 0)
        eventually(lambda: broker.hlen("reaper:unacked") == 0)
    insert_leased(connection, job_type="ok")
    if queue == "reaper":
        processes.beat(interval_seconds=0.5)
        eventually(lambda: hook_states(connection)["pending"] == 1, 40)
    else:
        assert processes.reaper("reap").wait(40) == 0
        eventually(lambda: hook_states(connection)["completed"] == 1, 40)
    assert worker.is_running
    assert not touched.exists()
    assert "x-python-serialize" in worker.log


class Monitor:
    """Everything that any client sends to the broker, decoded as far as it goes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._client = redis.Redis(
            host=parts.hostname, port=parts.port, username=parts.username, password=parts.password
        )
        self.text: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with self._client.monitor() as monitor:
                for command in monitor.listen():
                    self.text.append(command["command"])
        except (redis.RedisError, OSError, ValueError):
            return

    def close(self) -> None:
        self._client.close()

    def everything(self) -> str:
        plain = "\n".join(self.text)
        bodies = [part.split('"')[0] for part in plain.replace("\\", "").split('"body": "')[1:]]
        decoded = [base64.b64decode(body + "==").decode("utf-8", "replace") for body in bodies]
        return plain + "\n".join(decoded)


def test_payloads_stay_in_postgresql(processes, connect, broker_url):
    """Not in Redis, not in the logs at debug level, not for hooks that fail or time out."""
    connection = connect()
    monitor = Monitor(broker_url)
    debug = ("-l", "debug")
    limits = {"hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 0.5, "interval_seconds": 0.5}
    running = [
        processes.hook_worker(*debug, handlers="tests.security.handlers_secret", **limits).ready(),
        processes.reap_worker(*debug, **limits).ready(),
        processes.beat(*debug, **limits),
    ]
    payload = json.dumps({"secret": SECRET})
    kinds = ("fine", "tells", "hangs", "nobody", "undecodable")
    for kind in kinds[:4]:
        insert_leased(connection, job_type=kind, payload=payload)
    huge = '{"secret": "' + SECRET + '", "n": ' + "9" * 5000 + "}"
    insert_leased(connection, job_type="fine", payload=huge)
    wanted = {"completed": 1, "failed": 2, "timed_out": 1, "unhandled": 1}
    eventually(lambda: hook_states(connection) == wanted, 60)
    eventually(lambda: any("terminal_hook" in text for text in monitor.text))
    monitor.close()

    ledger = fetch(connection, "SELECT payload->>'secret' AS it FROM reaper.terminal_hooks")
    assert {row["it"] for row in ledger} == {SECRET}
    assert "reaper.terminal_hook" in monitor.everything()
    assert SECRET not in monitor.everything()
    for process in running:
        assert len(process.log) > 1000
        assert SECRET not in process.log
    listed = processes.reaper("hooks", "list", "--json")
    assert listed.wait(60) == 0, listed.log
    assert "hangs" in listed.log
    assert f'"{SECRET}"' not in listed.log
