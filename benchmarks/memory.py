"""P8: memory of a hook worker with eight idle children, beside a bare Celery worker."""

from collections.abc import Iterator

import psutil

from benchmarks.broker import flush, load_app
from benchmarks.stand import Stand, wait_until
from benchmarks.suite import Result, at_most, interleaved, ratio
from benchmarks.throughput import owe, ring
from tests.harness.processes import Process

MEGABYTE = 1024 * 1024


def measure(stand: Stand) -> Iterator[Result]:
    """Proportional set size of parent and children, after each has done some empty tasks."""
    load_app(stand)
    figures = interleaved(
        {
            "reaper": lambda: _hooks(stand),
            "bare": lambda: _bare(stand),
            "bare, frozen": lambda: _bare(stand, BENCH_FREEZE="1"),
        },
        stand.rounds,
    )
    shown = {name: [round(value, 1) for value in values] for name, values in figures.items()}
    value = ratio(figures, "reaper", "bare")
    yield at_most("P8", "hook worker / bare worker, PSS", value, 1.1, "ratio", megabytes=shown)
    value = ratio(figures, "reaper", "bare, frozen")
    what = "hook worker / bare worker with reaper's frozen collector, PSS"
    yield Result("P8", what, value, "ratio", "report", None)


def _hooks(stand: Stand) -> float:
    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        worker = processes.hook_worker("-l", "INFO", handlers="benchmarks.hook_handlers").ready()
        ring(stand, owe(dsn, "noop", 400))
        wait_until(dsn, "SELECT count(*) = 0 FROM reaper.terminal_hooks WHERE state <> 'completed'")
        return _pss(worker)


def _bare(stand: Stand, **env: str) -> float:
    from benchmarks import bare  # noqa: PLC0415 -- it reads the environment
    from benchmarks.broker import seconds_to_empty  # noqa: PLC0415

    flush(stand)
    with stand.clone() as dsn, stand.processes(dsn) as processes:
        for number in range(400):
            bare.noop.apply_async((number, 1))
        command = "-m celery -A benchmarks.bare worker -Q bare -n bare -l INFO"
        worker = processes.python(*command.split(), **env).ready()
        seconds_to_empty(stand, "bare:", "bare")
        return _pss(worker)


def _pss(worker: Process) -> float:
    pids = [worker.pid, *worker.children()]
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / MEGABYTE
