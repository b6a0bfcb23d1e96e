"""JSON on stdout, with payloads exactly as PostgreSQL has them.

A payload may hold integers and floats that Python cannot: its text goes into the document as it is.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any


def one_object(row: Any, **more: Any) -> str:
    """Return a dataclass as a JSON object; `payload_json` becomes `payload` where it is there."""
    values = {**asdict(row), **more}
    payload = values.pop("payload_json", None)
    text = json.dumps(values, default=_plain)
    return text if payload is None else f'{text[:-1]}, "payload": {payload}}}'


def array(objects: Iterable[str]) -> str:
    """Return JSON objects as an array, one a line."""
    return "[" + ",\n ".join(objects) + "]"


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
