"""The image in a container: runs hooks, survives a kill, and stops warm when Docker says TERM."""

from collections import Counter

from tests.harness.rows import hook_states, hooks, insert_leased, job
from tests.harness.waiting import eventually

SLOW = '{"seconds": 4}'
HOOKS_AT_ONCE = 8


def test_hook_completes_in_the_image_when_a_lease_expired(jobs, celery_setup):
    """An abandoned lease ends in its handler, in containers, as no root and as process 1."""
    worker = celery_setup.worker
    (job_id,) = insert_leased(jobs, job_type="quick")

    eventually(lambda: hook_states(jobs) == Counter(completed=1), 60)

    (hook,) = hooks(jobs, job_id)
    assert job(jobs, job_id)["status"] == "DEAD_LETTERED"
    assert (hook["tries"], hook["crashes"]) == (1, 0)
    assert hook["claimed_by"].startswith(f"{worker.hostname()}:1:")
    assert worker.container.exec_run(["id", "-u"]).output.strip() == b"10001"
    assert b"celery\0-A\0reaper" in worker.container.exec_run(["cat", "/proc/1/cmdline"]).output


def test_hooks_run_again_when_their_worker_container_was_killed(jobs, celery_setup):
    """A killed container costs a crash of each hook it was running, and loses none."""
    insert_leased(jobs, 3, job_type="slow", payload=SLOW)
    eventually(lambda: hook_states(jobs)["running"] == 3, 60)

    celery_setup.worker.kill()
    assert hook_states(jobs) == Counter(running=3)
    celery_setup.worker.restart()

    eventually(lambda: hook_states(jobs) == Counter(completed=3), 90)
    assert [(hook["tries"], hook["crashes"]) for hook in hooks(jobs)] == [(2, 1)] * 3


def test_running_hooks_finish_and_the_others_wait_when_the_container_is_stopped(jobs, celery_setup):
    """TERM reaches Celery as process 1: what runs is finished, what waits runs later."""
    insert_leased(jobs, 20, job_type="slow", payload=SLOW)
    eventually(lambda: hook_states(jobs)["running"] == HOOKS_AT_ONCE, 60)
    begun = {hook["hook_id"] for hook in hooks(jobs) if hook["state"] != "pending"}

    worker = celery_setup.worker.container
    worker._container.stop(timeout=30)  # the wrapper has no stop
    worker.reload()

    assert worker.attrs["State"]["ExitCode"] == 0  # 137 would be the kill
    states = {hook["hook_id"]: hook["state"] for hook in hooks(jobs)}
    assert {hook_id for hook_id, state in states.items() if state == "completed"} >= begun
    assert set(states.values()) == {"completed", "pending"}

    celery_setup.worker.restart()
    eventually(lambda: hook_states(jobs) == Counter(completed=20), 120)
    assert {(hook["tries"], hook["crashes"]) for hook in hooks(jobs)} == {(1, 0)}
