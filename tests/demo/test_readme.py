import json
import re
import signal
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from reaper.cli import main
from reaper.embedded.server import free_port
from reaper.processes.commands import CELERY_COMMANDS
from tests.demo.readme import README, quickstart
from tests.demo.running import Command
from tests.harness.waiting import eventually

KILLED = 128 + 9

AS_INSTALLED = 'export PATH="{scripts}:$PATH"\n'
"""Stands for the page's own environment, which takes long to make."""


class Reader:
    """Does what the page says, each `terminal` block in a shell of its own."""

    def __init__(self, processes, directory: Path) -> None:
        self.processes = processes
        self.directory = directory
        self.flower_port = free_port()
        self.terminals: dict[str, Command] = {}
        activate = directory / ".venv" / "bin" / "activate"
        activate.parent.mkdir(parents=True)
        activate.write_text(AS_INSTALLED.format(scripts=Path(sys.executable).parent))

    def do_file(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def do_install(self, name: str, text: str) -> None:
        assert "pip install '../reaper[embedded,flower]'" in text

    def do_terminal(self, name: str, text: str) -> None:
        process = self.processes.run(["sh", "-c", self._script(text)], **self._environment())
        self.terminals[name] = Command(process, Path("/dev/null"))
        if name == "servers":
            eventually((self.directory / "servers.env").exists, 60)

    def do_run(self, name: str, text: str) -> None:
        if name == "killed":  # by now a reader has seen the terminals come up
            self.terminals["hooks"].process.ready()
            eventually(lambda: self.flower("/healthcheck") == "OK", 60)
        ended = self.processes.run(
            ["sh", "-c", f"set -e\n{self._script(text)}"], **self._environment()
        )
        assert ended.wait(60) == (KILLED if name == "killed" else 0), ended.log

    def do_expect(self, name: str, text: str) -> None:
        self.terminals[name].process.wait_for(text.strip(), 60)

    def flower(self, path: str) -> str | None:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.flower_port}{path}") as answer,
        ):
            return answer.read().decode()
        return None

    def _script(self, text: str) -> str:
        scripts = AS_INSTALLED.format(scripts=Path(sys.executable).parent)
        return f"cd {self.directory}\n{scripts}{text}"

    def _environment(self) -> dict[str, object]:
        return {
            "database_url": None,
            "broker_url": None,
            "interval_seconds": 3,  # the page's reader waits longer
            "hook_concurrency": 2,
            "FLOWER_PORT": self.flower_port,
            "FLOWER_UNAUTHENTICATED_API": "true",
        }


@pytest.mark.slow
@pytest.mark.timeout(600)  # five terminals on two busy cores
def test_readme_quickstart_works_as_printed(processes, temporary):
    """README: everything in the quickstart is run as it stands."""
    reader = Reader(processes, temporary)
    for step in quickstart():
        getattr(reader, f"do_{step.kind}")(step.name, step.text)

    names = eventually(lambda: _task_names(reader) >= {"reaper.reap", "reaper.terminal_hook"}, 30)
    assert names
    servers = reader.terminals.pop("servers")
    for terminal in reader.terminals.values():
        terminal.end()
    servers.end()
    assert servers.wait() in (0, -signal.SIGTERM)
    eventually(lambda: not any(t.left() for t in reader.terminals.values()), 30)
    assert not (temporary / "servers.env").exists()


def test_readme_quickstart_has_every_step_in_order():
    """A marker that does not match would leave its block untested."""
    kinds = [f"{step.kind} {step.name}".strip() for step in quickstart()]
    assert kinds == [
        "file handlers.py",
        "install",
        "terminal servers",
        "run",
        "terminal beat",
        "terminal reap",
        "terminal hooks",
        "terminal flower",
        "file abandon.py",
        "run killed",
        "expect hooks",
        "run",
    ]
    assert README.read_text().count("<!-- quickstart:") == len(kinds)


def test_readme_handler_fits_on_the_first_screen():
    handler = quickstart()[0].text
    assert len(handler.strip().splitlines()) <= 12


def test_readme_names_only_commands_that_exist():
    text = README.read_text()
    named = set(
        re.findall(r"\breaper ([a-z][a-z-]+)(?: |`|$)", "\n".join(_code(text)), re.MULTILINE)
    )
    assert named - {"worker", "beat", "flower", "import"} <= set(main.list_commands(None))
    for arguments in CELERY_COMMANDS.values():
        assert f"celery -A reaper {' '.join(arguments[:3])}" in text


def test_readme_links_to_files_that_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert "://" in target or (README.parent / target).exists(), target


def _code(text: str) -> list[str]:
    blocks = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [*blocks, *re.findall(r"`(reaper [^`]+)`", text)]


def _task_names(reader: Reader) -> set[str]:
    answer = reader.flower("/api/tasks")
    return {task["name"] for task in json.loads(answer).values()} if answer else set()
