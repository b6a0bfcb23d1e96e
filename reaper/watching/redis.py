"""What only Redis can tell: how it treats reaper's messages, and who else is in its database."""

import re
from typing import Any

from reaper.celery import HOOK_QUEUE, REAP_QUEUE
from reaper.operations.facts import RedisFacts

LOOKED_AT = 1_000
"""Keys to look at for strangers: a database full of them shows one at once."""

SHOWN = 3

_OWN_KEY = re.compile(
    rf"""
    (_kombu\.binding(_permanent)?\.)? ({REAP_QUEUE}|{HOOK_QUEUE}) (\x06\x16\d)?  # queues
    | _kombu\.binding_deadlines
    | (_kombu\.binding(_permanent)?\.)? (.*\.)? celery\.pidbox  # remote control
    | (_kombu\.binding(_permanent)?\.)? celeryev (\..*)?       # events
    | unacked.*
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys that reaper's processes make where they have no prefix. Every Celery application makes those
without a queue's name in them, so they are nobody's sign."""


def read_redis(connection: Any) -> RedisFacts | None:
    """Return what Redis says, None where the broker is something else."""
    channel = connection.default_channel
    client = getattr(channel, "client", None)
    if client is None or not hasattr(client, "config_get"):
        return None
    prefix = str(getattr(channel, "global_keyprefix", "") or "")
    return RedisFacts(
        eviction_policy=_eviction_policy(client),
        keeps_data=_keeps_data(client),
        key_prefix=prefix,
        strangers=_strangers(client, prefix),
    )


def _eviction_policy(client: Any) -> str | None:
    policy = _info(client, "memory").get("maxmemory_policy")
    return str(policy) if policy else None


def _keeps_data(client: Any) -> bool | None:
    persistence = _info(client, "persistence")
    if "aof_enabled" not in persistence:
        return None
    if persistence["aof_enabled"]:
        return True
    try:
        return bool(client.config_get("save").get("save", "").strip())
    except Exception:  # noqa: BLE001 -- managed servers refuse CONFIG
        return None


def _info(client: Any, section: str) -> dict[str, Any]:
    try:
        return dict(client.info(section))
    except Exception as error:
        if "NOPERM" in str(error) or "unknown command" in str(error):
            return {}
        raise


def _strangers(client: Any, prefix: str) -> tuple[str, ...]:
    """A few keys that are not reaper's: SCAN in steps, never KEYS."""
    found: list[str] = []
    cursor, seen = 0, 0
    while seen < LOOKED_AT and len(found) < SHOWN:
        cursor, keys = client.scan(cursor=cursor, count=100)
        seen += len(keys)
        found += [name for name in map(_text, keys) if not _is_own(name, prefix)]
        if int(cursor) == 0:
            break
    return tuple(sorted(found)[:SHOWN])


def _is_own(key: str, prefix: str) -> bool:
    return key.startswith(prefix) if prefix else _OWN_KEY.fullmatch(key) is not None


def _text(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
