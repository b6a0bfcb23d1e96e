"""What a tick reports, and which arguments it refuses."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from reaper import reap as reaping
from reaper.config import Settings
from reaper.errors import ConfigError, StoreError
from reaper.store import Database
from tests.harness import rows
from tests.reap.conftest import Tick


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


def mixed(connection: Any) -> None:
    rows.insert_leased(connection, 2, job_type="a")
    rows.insert_leased(connection, 3, job_type="a", max_attempts=2)
    rows.insert_leased(connection, 1, job_type="b")
    rows.insert_leased(connection, 4, job_type="b", prestart=True)


def test_tick_counts_by_type_and_disposition(tick: Tick, connection: Any) -> None:
    mixed(connection)
    result = tick(claim_batch_size=3)
    assert (result.released, result.retried, result.dead_lettered) == (4, 3, 3)
    assert (result.processed, result.published, result.skipped) == (10, 3, 0)
    assert result.counts == {
        ("a", "dead_lettered"): 2,
        ("a", "retried"): 3,
        ("b", "dead_lettered"): 1,
        ("b", "released"): 4,
    }
    assert len(result.terminal) == len({record.hook_id for record in result.terminal}) == 3


def test_tick_records_its_counts_where_status_and_metrics_read_them(
    tick: Tick, connection: Any
) -> None:
    mixed(connection)
    tick()
    (last,) = rows.fetch(connection, "SELECT * FROM reaper.ticks")
    assert (last["released"], last["retried"], last["dead_lettered"]) == (4, 3, 3)
    assert last["ticks"] == 1
    assert last["finished_at"] >= last["started_at"]
    rows.insert_leased(connection, 5, job_type="a")
    tick()
    totals = rows.fetch(connection, "SELECT * FROM reaper.tick_totals ORDER BY 1, 2")
    assert [tuple(row.values()) for row in totals] == [
        ("a", "dead_lettered", 7),
        ("a", "retried", 3),
        ("b", "dead_lettered", 1),
        ("b", "released", 4),
    ]


def test_tick_logs_one_line_only_when_something_happened(
    tick: Tick, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "reaper")
    tick()
    assert caplog.messages == []
    mixed(connection)
    tick()
    (line,) = caplog.messages
    assert line.startswith("tick_finished processed=10 released=4 retried=3 dead_lettered=3")


def test_tick_returns_without_work_when_another_began_just_before(
    tick: Tick, connection: Any
) -> None:
    """A pile-up of reap messages costs no-ops."""
    assert tick(quiet_seconds=60).ran
    rows.insert_leased(connection)
    result = tick(quiet_seconds=60)
    assert (result.ran, result.processed) == (False, 0)
    rows.fetch(connection, "UPDATE reaper.ticks SET started_at = now() - interval '61 seconds'")
    assert tick(quiet_seconds=60).processed == 1


def test_tick_leaves_what_was_not_sent_due_at_once(tick: Tick, connection: Any) -> None:
    rows.insert_leased(connection, 6)
    tick.broker_is_up = False
    result = tick(claim_batch_size=2)
    assert (result.dead_lettered, result.published) == (6, 0)
    due = "SELECT count(*) AS n FROM reaper.terminal_hooks WHERE due_at <= now()"
    assert rows.fetch(connection, due) == [{"n": 6}]


def test_retry_waits_exactly_the_given_delay(tick: Tick, connection: Any) -> None:
    for delay in (1, 250, 2_147_483_647):
        (job_id,) = rows.insert_leased(connection, max_attempts=2)
        tick(retry_delay_ms=delay)
        job = rows.job(connection, job_id)
        assert (job["next_run_at"] - job["updated_at"]).total_seconds() * 1000 == delay
        assert rows.attempts(connection, job_id)[0]["retry_delay_ms"] == delay


@pytest.mark.parametrize(
    ("batch_size", "retry_delay_ms", "named"),
    [
        (0, 1, "claim_batch_size=0"),
        (-1, 1, "claim_batch_size=-1"),
        (10_001, 1, "claim_batch_size=10001"),
        (True, 1, "claim_batch_size=True"),
        (1.5, 1, "claim_batch_size=1.5"),
        ("5", 1, "claim_batch_size='5'"),
        (1, 0, "retry_delay_ms=0"),
        (1, -5, "retry_delay_ms=-5"),
        (1, 2_147_483_648, "retry_delay_ms=2147483648"),
        (1, None, "retry_delay_ms=None"),
    ],
)
def test_tick_refuses_bad_arguments_before_any_transaction(
    batch_size: Any, retry_delay_ms: Any, named: str
) -> None:
    """Bad arguments change nothing: there is not even a server behind this address."""
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none")
    settings = Settings.load({}).model_copy(
        update={"claim_batch_size": batch_size, "retry_delay_ms": retry_delay_ms}
    )
    with pytest.raises(ConfigError) as caught:
        reaping.run_tick(nowhere, settings, lambda _hooks: True)
    assert str(caught.value).startswith(
        f"{named} is not allowed: it takes a whole number from 1 to"
    )
    with pytest.raises(StoreError):
        reaping.run_tick(nowhere, Settings.load({}), lambda _hooks: True)


def test_tick_allows_exactly_what_the_settings_allow() -> None:
    for field, most in (
        ("claim_batch_size", reaping.BATCH_SIZE_MAX),
        ("retry_delay_ms", reaping.RETRY_DELAY_MAX_MS),
    ):
        assert getattr(Settings.load({field: most}), field) == most
        with pytest.raises(ConfigError):
            Settings.load({field: most + 1})
