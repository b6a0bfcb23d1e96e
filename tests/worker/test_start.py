"""A worker that could not be checked does not start."""

from pathlib import Path


def test_worker_does_not_start_when_its_checks_fail_for_an_unknown_reason(processes):
    """Celery only logs an error in a signal and would start the worker unchecked and uncapped."""
    broken = "import reaper.store.schema\n\n\ndef check(database):\n    raise LookupError\n\n\n"
    Path(processes.directory, "celeryconfig.py").write_text(
        broken + "reaper.store.schema.check = check\n"
    )
    worker = processes.hook_worker("-c", "32")
    assert worker.wait() == 1
    assert "reaper: the worker's checks failed: LookupError" in worker.log
