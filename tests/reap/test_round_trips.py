"""What a tick costs on the wire: one statement a batch as long as every row is healthy."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from reaper.store import Database
from tests.harness import rows
from tests.reap.conftest import Tick

SENT: list[str] = []


class CountingCursor(psycopg2.extensions.cursor):
    """A real cursor that remembers what it sent: each call is one message to the server."""

    def execute(self, query: Any, parameters: Any = None) -> None:
        SENT.append(str(query))
        super().execute(query, parameters)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tick: Tick, dsn: str) -> Iterator[list[str]]:
    """The statements the tick sends, from its second on: its connection is open."""
    counted = partial(psycopg2.connect, cursor_factory=CountingCursor)
    monkeypatch.setattr("reaper.store.connection.psycopg2.connect", counted)
    monkeypatch.setattr("reaper.store.connection.extensions.cursor", CountingCursor)
    tick.database = Database(dsn)
    tick()
    SENT.clear()
    yield SENT
    tick.database.close()


def test_tick_sends_one_statement_per_batch_when_all_are_healthy(
    tick: Tick, connect: Callable[..., Any], sent: list[str]
) -> None:
    """Isolating poison costs the healthy case nothing: begin, find, one a batch, finish."""
    rows.insert_leased(connect(), 20, max_attempts=1)
    rows.insert_leased(connect(), 20, max_attempts=2)
    rows.insert_leased(connect(), 10, prestart=True)
    SENT.clear()
    result = tick(claim_batch_size=20)
    assert (result.processed, result.batches) == (50, 3)
    assert len(sent) == 3 + 3
    assert sum("WITH expired" in text for text in sent) == 3


def test_idle_tick_sends_three_statements_and_no_batch(tick: Tick, sent: list[str]) -> None:
    tick()
    assert len(sent) == 3
    assert not any("WITH expired" in text for text in sent)


def test_isolating_one_poison_row_costs_two_statements_a_halving(
    tick: Tick, connect: Callable[..., Any], sent: list[str]
) -> None:
    connection = connect()
    ids = rows.insert_leased(connection, 64)
    rows.fetch(connection, "UPDATE job_queue SET attempt = 0 WHERE id = %s", (ids[40],))
    SENT.clear()
    result = tick()
    assert (result.dead_lettered, len(result.deferred)) == (63, 1)
    assert sum("WITH expired" in text for text in sent) == 1 + 1 + 2 * 6
