"""Plans of the statements as reaper really sends them: calls recorded, explained, rolled back."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reaper import sql
from reaper.store.connection import planner_settings


class Recorder:
    """Stands in for a session: remembers the statement and its parameters, answers nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def execute(self, name: str, parameters: Any = None, **_: Any) -> list[Any]:
        self.calls.append((name, dict(parameters or {})))
        return []


def recorded(call: Callable[[Any], object], name: str) -> tuple[str, dict[str, Any]]:
    """Return the statement `name` that `call` sends, and its parameters."""
    recorder = Recorder()
    with suppress(Exception):  # the empty answer is not what it expects
        call(recorder)
    (sent,) = (sent for sent in recorder.calls if sent[0] == name)
    return sent


@dataclass(frozen=True)
class Plan:
    """A plan, flat: every node with its type, relation and index."""

    name: str
    nodes: list[dict[str, Any]]
    text: str

    def scans(self, relation: str) -> set[tuple[str, str | None]]:
        """How `relation` is read: (node type, index)."""
        return {
            (node["Node Type"], node.get("Index Name"))
            for node in self.nodes
            if node.get("Relation Name") == relation and node["Node Type"] != "ModifyTable"
        } | {
            (node["Node Type"], node["Index Name"])
            for node in self.nodes
            if node["Node Type"] == "Bitmap Index Scan" and node["Index Name"].startswith(relation)
        }

    @property
    def pages(self) -> int:
        """Pages looked at, from memory or from disk; of an analyzed plan."""
        return int(self.nodes[0]["Shared Hit Blocks"] + self.nodes[0]["Shared Read Blocks"])


def explain(connection: Any, sent: tuple[str, dict[str, Any]], *, analyze: bool = False) -> Plan:
    """Explain a recorded statement; with `analyze` it runs too and is rolled back."""
    name, parameters = sent
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON" if analyze else "FORMAT JSON"
    with connection.cursor() as cursor:
        cursor.execute("BEGIN;" + planner_settings(name))
        cursor.execute(f"EXPLAIN ({options}) {sql.load(name)}", parameters)
        answer = cursor.fetchone()[0]
        cursor.execute("ROLLBACK")
    return Plan(name, list(_flat(answer[0]["Plan"])), json.dumps(answer, indent=1))


def _flat(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _flat(child)
