"""Flower as an operator uses it, read over its HTTP API from real processes."""

import pytest

from tests.flower.conftest import BROKER_PASSWORD, DATABASE_PASSWORD, FLOWER_LOGIN, PAYLOAD


def test_flower_shows_both_task_names_when_reaps_and_hooks_ran(stage):
    """Flower is part of the product: ticks and hooks appear under their names."""
    assert stage.flower.tasks("reaper.reap")
    assert stage.flower.tasks("reaper.redeliver")
    assert stage.flower.tasks("reaper.terminal_hook")
    assert {"reaper.reap", "reaper.terminal_hook"} <= set(
        stage.flower.json("/api/task/types")["task-types"]
    )


@pytest.mark.parametrize("job_type", ["ok", "raises", "sleeps", "blocks"])
def test_flower_shows_hook_id_job_id_and_type_as_the_arguments(stage, job_type):
    """A hook is readable in Flower: which hook, which job, which type."""
    row = stage.ledger[job_type]
    for task in stage.hook_tasks[job_type]:
        assert task["args"] == f"({job_type} {row['job_id']}, hook {row['hook_id']}, try 1)"
        assert task["kwargs"] == "{}"


def test_flower_shows_success_when_a_hook_completed(stage):
    assert stage.ledger["ok"]["state"] == "completed"
    assert [task["state"] for task in stage.hook_tasks["ok"]] == ["SUCCESS"]


@pytest.mark.parametrize(
    ("job_type", "state", "reason"),
    [
        ("raises", "failed", "ValueError"),
        ("sleeps", "timed_out", "SoftTimeLimitExceeded"),
        ("blocks", "timed_out", "TimeLimitExceeded"),
    ],
)
def test_flower_shows_failure_with_the_reason_when_a_hook_did_not_complete(
    stage, job_type, state, reason
):
    """Failed and timed-out hooks are FAILURE in Flower, each with its reason."""
    assert stage.ledger[job_type]["state"] == state
    assert {task["state"] for task in stage.hook_tasks[job_type]} == {"FAILURE"}
    for task in stage.hook_tasks[job_type]:
        assert reason in task["exception"]
        assert stage.flower.json(f"/api/task/info/{task['uuid']}")["state"] == "FAILURE"


def test_flower_never_shows_a_payload_a_handlers_text_or_a_password(stage):
    """Payloads stay in PostgreSQL, and passwords are masked, on every page and in every answer."""
    workers = list(stage.flower.json("/api/workers?refresh=1"))
    uuids = [task["uuid"] for tasks in stage.hook_tasks.values() for task in tasks]
    said = {
        path: stage.flower.text(path)
        for path in [
            "/",
            "/workers",
            "/tasks",
            "/broker",
            "/metrics",
            "/api/workers?refresh=1",
            "/api/tasks?limit=10000",
            "/api/queues/length",
            *[f"/worker/{name}" for name in workers],
            *[f"/task/{uuid}" for uuid in uuids],
            *[f"/api/task/info/{uuid}" for uuid in uuids],
        ]
    }
    configuration = "".join(said[f"/worker/{name}"] for name in workers)
    assert "broker_url" in configuration  # so the page that could show it was read
    text = "\n".join(said.values())
    password = FLOWER_LOGIN.partition(":")[2]
    for secret in (PAYLOAD, "as planned", BROKER_PASSWORD, DATABASE_PASSWORD, password):
        assert secret not in text, [path for path in said if secret in said[path]]


def test_flower_shows_which_worker_consumes_which_queue(stage):
    """Whether anybody reaps, and who runs hooks, can be read from Flower."""
    workers = stage.flower.json("/api/workers?refresh=1")
    queues = sorted(queue["name"] for info in workers.values() for queue in info["active_queues"])
    assert queues == ["reaper", "terminal-hooks"]
