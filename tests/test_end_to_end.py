"""The whole path on real processes: beat, a reap worker, a hook worker."""

from collections import Counter

from tests.harness.rows import effects, hook_states, hooks, insert_leased, job
from tests.harness.waiting import eventually


def test_expired_leases_are_reaped_and_their_hooks_run_by_beat_and_two_workers(processes, connect):
    """One command per process, and an abandoned lease ends in its handler."""
    connection = connect()
    dead = insert_leased(connection, job_type="ok")
    retried = insert_leased(connection, job_type="ok", max_attempts=3)
    insert_leased(connection, job_type="raises")
    insert_leased(connection, job_type="sleeps")
    insert_leased(connection, job_type="blocks")
    insert_leased(connection, job_type="nobody")
    limits = {"hook_timeout_seconds": 0.5, "hook_kill_grace_seconds": 0.5}
    processes.beat(interval_seconds=0.5)
    processes.reap_worker(interval_seconds=0.5)
    processes.hook_worker(**limits)

    wanted = Counter(completed=1, failed=1, timed_out=2, unhandled=1)
    eventually(lambda: hook_states(connection) == wanted, 60)

    assert [row["job_id"] for row in effects(connection, "ok")] == dead
    assert job(connection, retried[0])["status"] == "PENDING"
    assert job(connection, dead[0])["status"] == "DEAD_LETTERED"
    assert hooks(connection, retried[0]) == []
