"""What is published: ordinary Celery messages, on any transport, in order."""

import base64
import json
import os
import subprocess
import sys
import textwrap

import pytest
import redis
from celery import Celery

from reaper.jobs import HookRef
from reaper.publishing import Doorbell, describe
from tests.harness.processes import ROOT
from tests.publishing.test_gives_up import JOB, doorbell

HOOKS = [HookRef(number, 1, JOB, "demo") for number in range(1, 6)]


def test_message_is_the_hooks_key_and_its_try(broker_url):
    """Work crosses the wire by key: the message is `[hook_id, try]`, in JSON, and no more."""
    bell = doorbell(broker_url)
    hook = HookRef(42, 3, JOB, "demo")
    assert bell.publish([hook])
    with redis.Redis.from_url(broker_url) as client:
        (raw,) = client.lrange("reaper:terminal-hooks", 0, -1)
    message = json.loads(raw)
    assert json.loads(base64.b64decode(message["body"])) == [
        [42, 3],
        {},
        {"callbacks": None, "errbacks": None, "chain": None, "chord": None},
    ]
    assert message["headers"]["task"] == "reaper.terminal_hook"
    assert message["headers"]["argsrepr"] == describe(hook)
    assert message["content-type"] == "application/json"
    assert len(raw) < 1_500
    bell.close()


def test_message_description_is_cleaned_and_cut():
    strange = "a\0b\x1b" + "x" * 5_000
    text = describe(HookRef(1, 1, JOB, strange))
    assert len(text) < 200
    assert text.isprintable()


OTHER_APP = """
    import sys
    from celery import Celery

    app = Celery("other", broker=sys.argv[1])
    app.conf.broker_transport_options = {"global_keyprefix": "reaper:"}
    app.conf.worker_redirect_stdouts = False

    @app.task(name="reaper.terminal_hook", bind=True)
    def hook(self, hook_id, try_number):
        print("got", hook_id, try_number, self.request.argsrepr, flush=True)

    app.worker_main(["worker", "-P", "solo", "-Q", "terminal-hooks", "-n", "other", "-l", "ERROR"])
"""


def test_message_is_read_by_another_celery_application(broker_url, processes):
    """An ordinary Celery message: any Celery 5 worker runs it."""
    assert doorbell(broker_url).publish(HOOKS)
    other = processes.python("-c", textwrap.dedent(OTHER_APP), broker_url)
    for hook in HOOKS:
        other.wait_for(f"got {hook.hook_id} 1 {describe(hook)}", 60)


def test_messages_wait_in_the_order_of_their_hooks(broker_url):
    bell = doorbell(broker_url)
    assert bell.publish(HOOKS)
    assert bell.count_messages() == len(HOOKS)
    assert [_take(broker_url) for _ in HOOKS] == [hook.hook_id for hook in HOOKS]


def _take(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        message = json.loads(client.rpop("reaper:terminal-hooks"))
    return json.loads(base64.b64decode(message["body"]))[0][0]


@pytest.mark.parametrize("transport", ["memory", "filesystem"])
def test_other_transports_use_the_ordinary_publish_path(tmp_path, transport):
    """Where kombu cannot batch, each message is published by itself."""
    for name in ("queue", "control"):
        (tmp_path / name).mkdir()
    app = Celery("elsewhere", broker=f"{transport}://", set_as_current=False)
    folders = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
    if transport == "filesystem":
        app.conf.broker_transport_options = {
            option: str(tmp_path / folder) for option, folder in folders.items()
        }
    bell = Doorbell(app)
    assert bell.publish(HOOKS)
    assert bell.count_messages() == len(HOOKS)
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("terminal-hooks")
        got = [queue.get(timeout=5) for _ in HOOKS]
        keys = [message.payload[0] for message in got]
        if transport == "filesystem":
            keys.sort()  # its files keep no order within a millisecond
        assert keys == [[hook.hook_id, hook.try_number] for hook in HOOKS]
        for message in got:
            message.ack()
    bell.close()


def test_count_is_unknown_when_the_broker_is_away(own_valkey):
    bell = doorbell(own_valkey.url)
    assert bell.count_messages() == 0
    own_valkey.pause()
    assert bell.count_messages() > 10**9


def test_publishing_opens_another_connection_after_a_restart(own_valkey):
    bell = doorbell(own_valkey.url)
    assert bell.publish(HOOKS)
    own_valkey.restart()
    assert bell.publish(HOOKS) or bell.publish(HOOKS)


FORKS = """
    import os, sys
    from tests.publishing.test_gives_up import doorbell
    from tests.publishing.test_messages import HOOKS

    bell = doorbell(sys.argv[1])
    assert bell.publish(HOOKS)
    for _ in range(4):
        if os.fork() == 0:
            os._exit(0 if all(bell.publish(HOOKS) for _ in range(20)) else 1)
    for _ in range(4):
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert bell.publish(HOOKS)
    assert bell.count_messages() == 82 * len(HOOKS), bell.count_messages()
"""


def test_publishing_works_in_every_child_of_a_fork(broker_url):
    """Each process has a connection of its own, made after the fork."""
    command = [sys.executable, "-c", textwrap.dedent(FORKS), broker_url]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
