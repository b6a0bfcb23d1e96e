"""What a broker can do to its clients without going away."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from reaper.embedded import EmbeddedValkey


def drop_connections(valkey: EmbeddedValkey) -> None:
    """Close every client's connection; they may come back at once."""
    with redis.Redis.from_url(valkey.url) as client:
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)


@contextmanager
def full(valkey: EmbeddedValkey) -> Iterator[None]:
    """Answer every write with an error, as a server does that may not evict."""
    with redis.Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


@contextmanager
def demoted(valkey: EmbeddedValkey) -> Iterator[None]:
    """Answer every write with an error, as a primary does that became a replica."""
    with redis.Redis.from_url(valkey.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            yield
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
