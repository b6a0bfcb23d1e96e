"""What `import reaper` gives: its names, what it must not load, and that its types hold."""

import subprocess
import sys
from pathlib import Path

import reaper

ROOT = Path(__file__).parents[1]

USER_CODE = """
import uuid
from typing import Any, assert_type

import psycopg2

import reaper
from reaper import (
    Database,
    JobContext,
    JobDeadLetterInfo,
    JobDeadLetterReason,
    JobFailureKind,
    JobHandler,
    JobRegistry,
    Lease,
    LeaseLost,
    leases,
    on_dead_letter,
)


@on_dead_letter("mail", max_tries=3)
def mail_died(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    assert_type(context.job_id, str)
    assert_type(context.lease_owner, str | None)
    assert_type(dead_letter.reason, JobDeadLetterReason)
    assert_type(dead_letter.failure.kind, JobFailureKind)


@on_dead_letter("*")
async def anything_died(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    return None


class ScanDied(JobHandler):
    job_type = "scan"

    def on_dead_letter(
        self, context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo
    ) -> None:
        return None


JobRegistry().register(ScanDied())


def work(url: str) -> int:
    database = reaper.connect(url)
    assert_type(database, Database)
    leases.define_job_type(database, "mail", max_attempts=3)
    job_id = leases.enqueue(database, "mail", {"to": ["x"]}, organization_id=uuid.uuid4())
    assert_type(job_id, str)
    for lease in leases.claim(database, "w1", batch_size=5, job_types=["mail"]):
        assert_type(lease, Lease)
        assert_type(lease.attempt, int)
        try:
            leases.start(database, lease)
            leases.progress(database, lease, done=1, total=2, checkpoint={"page": 1})
            leases.heartbeat(database, lease, lease_seconds=30)
            with psycopg2.connect(url) as connection:
                leases.succeed(Database.borrow(connection), lease)
        except LeaseLost:
            continue
        except OSError as error:
            died = leases.fail(database, lease, kind=JobFailureKind.TIMEOUT, message=str(error))
            assert_type(died, bool)
    return 0
"""

MISTAKES = """
from reaper import Lease, leases

leases.claim("postgresql://", "w1")
leases.succeed(leases.connect(), "job")
leases.claim(leases.connect(), "w1", 60.0)
leases.enqueue(leases.connect(), "mail")
Lease("id").attempt = 2
"""


def test_names_are_sorted_and_there():
    assert reaper.__all__ == sorted(reaper.__all__)
    assert len(reaper.__all__) == len(set(reaper.__all__))
    for name in reaper.__all__:
        assert getattr(reaper, name).__doc__, f"reaper.{name} says what it is"


def test_star_import_gives_the_public_names_only():
    given: dict[str, object] = {}
    exec("from reaper import *", given)  # noqa: S102 -- the statement under test
    assert set(given) - {"__builtins__"} == set(reaper.__all__)


def test_import_loads_no_celery_reads_no_settings_and_starts_nothing(tmp_path):
    """A worker of your own, and a handler module in a test, need no broker and no settings."""
    code = (
        "import sys, threading; import reaper;"
        " print([m for m in sys.modules if m.split('.')[0] in {'celery', 'redis'}],"
        " threading.active_count())"
    )
    environment = {
        "PYTHONPATH": str(ROOT),
        "REAPER_DATABASE_URL": "nonsense",
        "REAPER_INTERVAL_SECONDS": "fast",
    }
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout == "[] 1\n"


def test_users_code_is_typed_strictly(tmp_path):
    """Handlers and lease holders pass mypy --strict; what is wrong is found at its line."""
    (tmp_path / "good.py").write_text(USER_CODE)
    (tmp_path / "bad.py").write_text(MISTAKES)
    options = ["--strict", "--config-file", "", "--no-error-summary", "--follow-imports", "silent"]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", "cache", "good.py", "bad.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""
    places = {tuple(line.split(":")[:2]) for line in result.stdout.splitlines() if "error:" in line}
    assert places == {("bad.py", str(line)) for line in (4, 5, 6, 7, 8)}
