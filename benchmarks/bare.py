"""A bare Celery app with the worker settings of reaper's hooks and no ledger, for comparison.

It imports nothing of reaper's, so that its memory is Celery's alone; tests/benchmarks/test_bare.py
checks that the settings are still reaper's.
"""

import gc
import os
import time
from typing import Any

from celery import Celery, signals
from kombu import Queue

SETTINGS: dict[str, Any] = {
    "accept_content": ["json"],
    "broker_connection_retry_on_startup": True,
    "event_serializer": "json",
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,
    "task_ignore_result": True,
    "task_reject_on_worker_lost": False,
    "task_serializer": "json",
    "worker_concurrency": 8,
    "worker_prefetch_multiplier": 1,
    "worker_send_task_events": True,
}

TASK: dict[str, Any] = {"acks_late": True, "soft_time_limit": 10, "time_limit": 12}

app = Celery("bare", broker=os.environ["REAPER_BROKER_URL"], set_as_current=False)
app.conf.update(
    SETTINGS,
    task_default_queue="bare",
    task_queues=[Queue("bare")],
    broker_transport_options={"global_keyprefix": "bare:"},
)


if os.environ.get("BENCH_FREEZE"):

    @signals.worker_before_create_process.connect
    def share_memory(**_: Any) -> None:
        """Do what reaper.worker.start does, to show what the rest of reaper costs."""
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()


@app.task(name="bare.noop", **TASK)
def noop(number: int, try_number: int) -> None:
    """Do nothing."""


@app.task(name="bare.tenth", **TASK)
def tenth(number: int, try_number: int) -> None:
    """Take 100 ms."""
    time.sleep(0.1)
