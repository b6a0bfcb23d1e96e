"""The crash table of docs/architecture.md: one test per row kills a real process exactly there.

Each row names the arrow, where the process dies, what is then left in PostgreSQL, and how often
the handler's effect may be there in the end. Nothing waits for the ledger's own delays: `due_at` is
aged.
"""

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tests.harness.processes import ROOT
from tests.harness.rows import effects, fetch, hook_states, insert_leased
from tests.harness.waiting import eventually

JOBS = 3
REAP, HOOK, BEAT = "reap worker", "hook worker", "beat"

LEDGER = "reaper.store.ledger"
REAPING = "reaper.store.reaping"
DOORBELL = "reaper.publishing:Doorbell"


@dataclass(frozen=True)
class Row:
    """One row of the table. `left`: ledger states after the death; `most`: effects per job."""

    number: int
    process: str
    point: str
    left: tuple[dict[str, int], ...]
    job_type: str = "ok"
    most: int = 1


NOTHING: dict[str, int] = {}
PENDING = {"pending": JOBS}
ONE_RUNS = {"pending": JOBS - 1, "running": 1}
ONE_DONE = {"pending": JOBS - 1, "completed": 1}
ONE_TIMED_OUT = {"pending": JOBS - 1, "timed_out": 1}

ROWS = [
    Row(1, BEAT, "celery.beat:Scheduler.apply_async:before", (NOTHING,)),
    Row(2, BEAT, "celery.beat:Scheduler.apply_async:after", (NOTHING,)),
    Row(3, REAP, f"{REAPING}:begin_tick:before", (NOTHING,)),
    Row(4, REAP, f"{REAPING}:begin_tick:after", (NOTHING,)),
    Row(5, REAP, f"{REAPING}:reap_batch:after", (PENDING,)),
    Row(6, REAP, f"{DOORBELL}._send:before:2", (PENDING,)),
    Row(7, REAP, f"{DOORBELL}.publish:after", (PENDING,)),
    Row(8, HOOK, f"{LEDGER}:claim_hook:before", (PENDING,)),
    Row(9, HOOK, f"{LEDGER}:claim_hook:after", (ONE_RUNS,)),
    Row(10, HOOK, "tests.harness.handlers:effect:after", (ONE_RUNS,), most=2),
    Row(11, HOOK, f"{LEDGER}:record_outcome:before", (ONE_RUNS,), most=2),
    Row(12, HOOK, f"{LEDGER}:record_outcome:after", (ONE_DONE,)),
    Row(13, HOOK, f"{LEDGER}:record_outcome:after", (ONE_RUNS,), "transactional"),
    Row(14, HOOK, "reaper.hooks:HookRunner._run_transactional:after", (ONE_DONE,), "transactional"),
    Row(15, REAP, f"{LEDGER}:release_lost_hooks:after", (PENDING,)),
    Row(16, REAP, f"{LEDGER}:take_due_hooks:after", (PENDING,)),
]

FAST = {"interval_seconds": 0.4, "hook_timeout_seconds": 2, "hook_kill_grace_seconds": 0.5}
HANDLERS = "tests.faults.handlers_crash"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number:02}-{row.point}")
def test_no_notice_is_lost_when_a_process_dies_at_an_arrow(processes, connect, row):
    """Every row of the crash table: what is left is as written, and the notice arrives."""
    connection = connect()
    ids = insert_leased(connection, JOBS, job_type=row.job_type)
    _die_there(processes, connection, row)

    left = dict(hook_states(connection))
    assert left in row.left

    _start(processes)
    eventually(lambda: _age(connection) or _all_completed(connection, ids), 60)
    seen = Counter(effect["job_id"] for effect in effects(connection, "ok"))
    assert set(seen) == set(ids)
    assert max(seen.values()) <= row.most


def test_no_notice_is_lost_when_a_hook_worker_dies_while_it_records_a_kill(processes, connect):
    """Row 17: the parent dies at the hard limit; the hook is lost, run again and timed out."""
    connection = connect()
    insert_leased(connection, 1, job_type="blocks")
    limits = {"hook_timeout_seconds": 0.3, "hook_kill_grace_seconds": 0.3}
    _reap(processes)
    dying = _armed(processes, HOOK, f"{LEDGER}:record_outcome:before", **limits)
    dying.wait(60)
    assert "failpoint" in dying.log
    assert hook_states(connection) == {"running": 1}
    _start(processes, **limits)
    eventually(lambda: _age(connection) or hook_states(connection) == {"timed_out": 1}, 60)
    (hook,) = fetch(connection, "SELECT tries, crashes FROM reaper.terminal_hooks")
    assert hook == {"tries": 2, "crashes": 1}


def test_no_notice_is_lost_when_a_drain_dies_before_it_hands_back(processes, connect):
    """Row 18: a worker dies at the end of its drain window; its hooks are released as lost."""
    connection = connect()
    insert_leased(connection, 1, job_type="slow", payload='{"seconds": 1.5}')
    _reap(processes)
    point = f"{LEDGER}:hand_back_hooks:before"
    dying = _armed(processes, HOOK, point, drain_seconds=0.1)
    eventually(lambda: len(effects(connection, "begin")) == 1, 60)
    dying.terminate()
    dying.wait(30)
    assert "failpoint" in dying.log
    assert hook_states(connection) == {"running": 1}
    _start(processes)
    eventually(lambda: _age(connection) or hook_states(connection) == {"completed": 1}, 60)
    assert len(effects(connection, "end")) == 1


def test_crash_table_in_the_document_has_these_rows():
    """docs/architecture.md lists each row under the number tested here."""
    page = Path(ROOT, "docs", "architecture.md").read_text("utf-8")
    table = page[page.index("## The crash table") :]
    numbers = [int(n) for n in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert numbers == [*(row.number for row in ROWS), 17, 18]


def _die_there(processes, connection, row: Row) -> None:
    if row.process is BEAT:
        dying = _armed(processes, BEAT, row.point)
        dying.wait(60)
        assert "failpoint" in dying.log
        return
    if row.process is HOOK:
        _reap(processes)
        dying = _armed(processes, HOOK, row.point, "-c", "1")
    else:
        if "hooks" in row.point:  # redelivery needs something unheard
            _reap(processes)
            fetch(connection, "UPDATE reaper.terminal_hooks SET due_at = now() - interval '1 s'")
            with redis.Redis.from_url(processes.broker_url) as broker:
                broker.flushdb()
        dying = _armed(processes, REAP, row.point)
    dying.wait_for("failpoint", 60)
    dying.end()  # all of it, as when the machine goes: nobody repairs before we have looked


def _reap(processes) -> None:
    """One tick: the leases become ledger rows and messages."""
    assert processes.reaper("reap").wait(60) == 0


def _armed(processes, kind: str, point: str, *args: str, **env):
    commands = {
        BEAT: ["beat"],
        REAP: ["worker", "-B", "-Q", "reaper", "-c", "1", "-n", "dying"],
        HOOK: ["worker", "-Q", "terminal-hooks", "-n", "dying"],
    }
    module = ["-m", "tests.harness.failpoints", point, "--"]
    return processes.python(*module, *commands[kind], *args, handlers=HANDLERS, **(FAST | env))


def _start(processes, **env) -> None:
    """Start what repairs it: beat and both kinds of worker in one."""
    processes.celery("worker", "-B", "-c", "4", handlers=HANDLERS, **(FAST | env))


def _age(connection) -> None:
    """Let 30 seconds pass for unheard notices; a lost worker's hook is due by itself."""
    fetch(
        connection,
        "UPDATE reaper.terminal_hooks SET due_at = clock_timestamp() - interval '1 second'"
        " WHERE state = 'pending' AND due_at > clock_timestamp()"
        " AND created_at < clock_timestamp() - interval '3 seconds'",
    )


def _all_completed(connection, ids) -> bool:
    time.sleep(0.2)
    return hook_states(connection) == {"completed": len(ids)}
