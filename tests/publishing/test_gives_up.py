"""Publishing gives up within 5 s, in every way a broker can hang (case 32)."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from celery import Celery

from reaper.jobs import HookRef
from reaper.publishing import UNKNOWN_COUNT, Doorbell

PROMISED_SECONDS = 5.0
SLACK_SECONDS = 2.0
"""A busy machine may not run us for a while; the promise itself has a second of slack."""

JOB = "00000000-0000-0000-0000-000000000000"
FLOOD = [HookRef(number, 1, JOB, "demo") for number in range(10_000)]


def doorbell(url: str) -> Doorbell:
    app = Celery("doorbell", broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "reaper:"}
    return Doorbell(app)


def gives_up(bell: Doorbell, hooks=FLOOD) -> bool:
    began = time.monotonic()
    sent = bell.publish(hooks)
    assert time.monotonic() - began < PROMISED_SECONDS + SLACK_SECONDS
    return not sent


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


def listen(stack: ExitStack, backlog: int = 50) -> tuple[socket.socket, str]:
    """A socket that accepts nothing by itself; the kernel still completes connections."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=backlog))
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def test_publishing_gives_up_when_the_broker_is_paused(own_valkey):
    """Case 32, on a kept connection and on a new one; it works again as soon as the broker does."""
    bell = doorbell(own_valkey.url)
    assert bell.publish(FLOOD[:1])
    own_valkey.pause()
    assert gives_up(bell)
    assert gives_up(bell)
    assert bell.count_messages() == UNKNOWN_COUNT
    own_valkey.resume()
    assert bell.publish(FLOOD[:1])


def test_publishing_gives_up_when_the_broker_is_paused_in_the_middle_of_a_flood(own_valkey):
    """Case 32: 10,000 messages; some are on the broker then, so all count as unsent."""
    bell = doorbell(own_valkey.url)
    assert bell.publish(FLOOD[:1])
    timer = threading.Timer(0.15, own_valkey.pause)
    timer.start()
    sent = not gives_up(bell)
    timer.join()
    own_valkey.resume()
    if sent:  # the flood was faster than the timer: it is all there
        assert bell.count_messages() == len(FLOOD) + 1
    else:
        assert bell.count_messages() < len(FLOOD)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_publishing_gives_up_when_the_broker_refuses(scheme):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    assert gives_up(doorbell(f"{scheme}://{place}/"))


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_publishing_gives_up_when_the_broker_never_answers(stack, scheme):
    """Case 32: a black hole, a listening socket that never answers."""
    _, place = listen(stack)
    assert gives_up(doorbell(f"{scheme}://{place}/"))


def test_publishing_gives_up_when_the_broker_never_accepts(stack):
    """The backlog is full: connecting itself hangs, as with a host that drops every packet."""
    server, place = listen(stack, backlog=0)
    for _ in range(4):
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.connect(server.getsockname())
    assert gives_up(doorbell(f"redis://{place}/0"))


def test_publishing_gives_up_when_two_brokers_never_answer(stack):
    places = [listen(stack)[1] for _ in range(2)]
    assert gives_up(doorbell(";".join(f"redis://{place}/0" for place in places)))


def test_publishing_gives_up_when_the_broker_only_drips(stack):
    """Each byte comes in time, the answer never: no socket timeout bounds that.

    What is left behind is one thread, however often it is tried: further calls fail at once.
    """
    server, place = listen(stack)
    ended = threading.Event()
    stack.callback(ended.set)

    def drip() -> None:
        with suppress(OSError):
            client, _ = server.accept()
            with client:
                while not ended.wait(0.2):
                    client.sendall(b"+")

    threading.Thread(target=drip, daemon=True).start()
    bell = doorbell(f"redis://{place}/0")
    before = threading.active_count()
    assert gives_up(bell)
    for _ in range(3):
        began = time.monotonic()
        assert not bell.publish(FLOOD)
        assert bell.count_messages() == UNKNOWN_COUNT
        assert time.monotonic() - began < 1
    assert threading.active_count() == before + 1


def test_publishing_says_so_without_the_url(caplog):
    """A password in the broker's URL is in no log line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    assert gives_up(doorbell(f"redis://:secret@{place}/0"))
    assert "publish_failed" in caplog.text
    assert "secret" not in caplog.text


def test_redis_is_asked_once_and_never_retried_by_its_client(own_valkey):
    """redis-py would retry ten times by default: 1 s each would be over the promise."""
    bell = doorbell(own_valkey.url)
    assert bell.publish(FLOOD[:1])
    with bell._channel.conn_or_acquire() as client:
        connection = client.connection_pool.get_connection()
        assert connection.retry.get_retries() == 0
        assert (connection.socket_timeout, connection.socket_connect_timeout) == (1.0, 1.0)
        client.connection_pool.release(connection)
    bell.close()
