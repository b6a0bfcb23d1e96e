"""The quickstart of README.md as a list of steps, read from the page itself."""

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"

_STEP = re.compile(
    r"^<!-- quickstart: (\w+)(?:,? ([\w.]+))? -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Step:
    """A marked block: `file NAME`, `install`, `run`, `terminal NAME` or `expect TERMINAL`."""

    kind: str
    name: str
    text: str


def quickstart() -> list[Step]:
    """Return the marked blocks in the order of the page."""
    return [Step(*found.groups("")) for found in _STEP.finditer(README.read_text("utf-8"))]
