"""Takes docs/images/flower-tasks.png: Flower in a real browser, after the demo's jobs have died.

Starts servers, beat, both workers and Flower of its own, and ends them. Needs Chromium on the PATH.
"""

# ruff: noqa: INP001 -- a script beside the documents, no package

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.request import Request, urlopen

import reaper.demo.handlers  # noqa: F401 -- fills the registry: the types are those with a handler
from reaper import leases
from reaper.embedded import EmbeddedPostgres, EmbeddedValkey
from reaper.processes import Children, celery_command, without_settings
from reaper.registry import registry
from reaper.store import Database, schema

PICTURE = Path(__file__).parent / "images" / "flower-tasks.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WINDOW = "1500,760"
VIRTUAL_MS = 10_000
"""How long the page may run its scripts, in the browser's own time."""

JOBS_OF_EACH_TYPE = 2
LEASE_SECONDS = 1.0
SETTINGS = {
    "REAPER_HANDLERS": "reaper.demo.handlers",
    "REAPER_INTERVAL_SECONDS": "2",
    "REAPER_HOOK_TIMEOUT_SECONDS": "2",
    "REAPER_DRAIN_SECONDS": "0",
    "FLOWER_TASKS_COLUMNS": "name,state,args,exception,received,runtime",
}
LOGIN = "screenshot:screenshot"
DEADLINE_SECONDS = 60.0

T = TypeVar("T")


def main() -> None:
    """Take the picture.

    1. Start the servers, both workers and Flower.
    2. Let a worker die with two jobs of each type, and start beat.
    3. When Flower has seen every hook end, photograph its list of tasks.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser: install Chromium; looked for {', '.join(BROWSERS)} on the PATH")
    with (
        tempfile.TemporaryDirectory(prefix="reaper-screenshot-") as name,
        EmbeddedPostgres() as postgres,
        EmbeddedValkey(persistence=False) as valkey,
        Children(stop_seconds=5.0) as children,
    ):
        directory = Path(name)
        environment = without_settings(os.environ) | SETTINGS
        environment |= {"REAPER_DATABASE_URL": postgres.dsn, "REAPER_BROKER_URL": valkey.url}
        database = Database(postgres.dsn)
        schema.migrate(database, with_job_tables=True)

        def start(process: str, command: list[str]) -> Callable[[], str]:
            path = directory / f"{process}.log"
            with path.open("wb") as log:
                children.start(
                    process,
                    command,
                    environment=environment,
                    directory=directory,
                    output=log.fileno(),
                )
            return path.read_text

        logs = [start(worker, celery_command(worker, "-l", "INFO")) for worker in ("reap", "hooks")]
        for read in logs:
            wait(lambda read=read: " ready." in read(), read)
        flower = start("flower", flower_command())
        found = wait(lambda: re.search(r"Visit me at (http://\S+)", flower()), flower)
        hooks = lease_and_leave(database)
        database.close()
        start("beat", celery_command("beat"))
        wait(lambda: count_ended(found[1]) >= hooks, flower)
        photograph(browser, found[1], directory)
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")  # noqa: T201 -- a script's result


def flower_command() -> list[str]:
    """Return Flower's command line, on a free port of this machine."""
    command = [sys.executable, "-m", "celery", "-A", "reaper", "flower"]
    return [*command, "--address=127.0.0.1", "--port=0", f"--basic-auth={LOGIN}"]


def lease_and_leave(database: Database) -> int:
    """Lease jobs of each type that has a handler, and never come back; return how many."""
    for job_type in registry.job_types():
        leases.define_job_type(database, job_type, max_attempts=1)
        for _ in range(JOBS_OF_EACH_TYPE):
            leases.enqueue(database, job_type, {"order": 4711})
    held = leases.claim(
        database, worker_id="worker-1", lease_seconds=LEASE_SECONDS, batch_size=1000
    )
    time.sleep(LEASE_SECONDS)
    return len(held)


def count_ended(url: str) -> int:
    """Return how many hooks Flower has seen succeed or fail."""
    token = b64encode(LOGIN.encode()).decode()
    request = Request(  # noqa: S310 -- http, to the Flower that was started above
        f"{url}/api/tasks?taskname=reaper.terminal_hook",
        headers={"Authorization": f"Basic {token}"},
    )
    with urlopen(request, timeout=10) as answer:  # noqa: S310 -- as above
        return len(re.findall(r'"state": "(?:SUCCESS|FAILURE)"', answer.read().decode()))


def photograph(browser: str, url: str, directory: Path) -> None:
    """Write the picture of Flower's list of hooks."""
    PICTURE.parent.mkdir(exist_ok=True)
    address = url.replace("://", f"://{LOGIN}@") + "/tasks?name=reaper.terminal_hook"
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",  # it reads one page of this machine; as root it would not start with it
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={directory / 'browser'}",
            f"--window-size={WINDOW}",
            f"--virtual-time-budget={VIRTUAL_MS}",
            f"--screenshot={PICTURE}",
            address,
        ],
        check=True,
        timeout=DEADLINE_SECONDS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait(check: Callable[[], T], log: Callable[[], str]) -> T:
    """Return the first truthy value of `check`; end with the log where none comes."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            sys.exit(f"nothing happened within {DEADLINE_SECONDS:.0f} s:\n{log()}")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
