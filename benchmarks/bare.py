"""A bare Celery app with the worker settings of reaper's hooks and no ledger, for comparison."""

import os

from celery import Celery
from kombu import Queue

from reaper.celery import app as reaper_app

app = Celery("bare", broker=os.environ["REAPER_BROKER_URL"])
app.conf.update(
    {
        name: reaper_app.conf[name]
        for name in (
            "accept_content",
            "event_serializer",
            "task_acks_on_failure_or_timeout",
            "task_ignore_result",
            "task_reject_on_worker_lost",
            "task_serializer",
            "worker_concurrency",
            "worker_prefetch_multiplier",
            "worker_send_task_events",
            "worker_hijack_root_logger",
        )
    },
    task_default_queue="bare",
    task_queues=[Queue("bare")],
    broker_transport_options=dict(reaper_app.conf.broker_transport_options)
    | {"global_keyprefix": "bare:"},
)


@app.task(name="bare.noop", acks_late=True, soft_time_limit=10, time_limit=12)
def noop(number: int, try_number: int) -> None:
    """Do nothing."""
