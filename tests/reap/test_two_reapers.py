"""Any number of reapers at once: each lease goes to exactly one of them."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reaper.config import Settings
from reaper.store import Database, reaping
from tests.harness import rows
from tests.reap.conftest import EACH_SERVER, Tick

pytestmark = EACH_SERVER

REAPERS = 3


def test_reapers_at_once_share_the_leases_and_none_is_reaped_twice(
    dsn: str, settings: Callable[..., Settings], connect: Callable[..., Any]
) -> None:
    """Every exhausted lease becomes one dead letter and one ledger row, whoever reaps it."""
    connection = connect()
    rows.insert_leased(connection, 300, max_attempts=1)
    rows.insert_leased(connection, 300, max_attempts=2)
    begin = threading.Barrier(REAPERS)

    def reap(_number: int) -> list[str]:
        tick = Tick(Database(dsn), settings)
        begin.wait(20)
        result = tick(claim_batch_size=7)
        tick.database.close()
        return [record.job_id for record in result.terminal] + ["retried"] * result.retried

    with ThreadPoolExecutor(REAPERS) as pool:
        found = Counter(job_id for part in pool.map(reap, range(REAPERS)) for job_id in part)
    assert found.pop("retried") == 300
    assert set(found.values()) == {1}
    assert len(found) == 300
    owed = Counter(hook["job_id"] for hook in rows.hooks(connection))
    assert owed == found
    events = rows.fetch(
        connection, "SELECT event_type, count(*) AS n FROM job_events GROUP BY 1 ORDER BY 1"
    )
    assert {row["event_type"]: row["n"] for row in events} == {
        "RETRY_SCHEDULED": 300,
        "FAILED": 600,
        "DEAD_LETTERED": 300,
    }


def test_a_reaper_takes_what_another_has_not_locked(dsn: str, connect: Callable[..., Any]) -> None:
    """Two reapers in the middle of their batches have disjoint ones, and neither waits."""
    ids = rows.insert_leased(connect(), 10)
    first, second = connect(), connect()
    first.autocommit = second.autocommit = False
    batches = [
        reaping.reap_batch(Database.borrow(connection), batch_size=5, retry_delay_ms=1)
        for connection in (first, second)
    ]
    assert [{r.job_id for r in batch.terminal} for batch in batches] == [set(ids[:5]), set(ids[5:])]
    first.rollback()
    second.commit()
    left = rows.fetch(connect(), "SELECT id FROM job_queue WHERE status = 'LEASED'")
    assert {row["id"] for row in left} == set(ids[:5])
