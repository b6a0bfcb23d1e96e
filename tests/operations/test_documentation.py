"""docs/operations.md says what is: settings, commands, metrics, checks."""

import re
from pathlib import Path

import click
import pytest

from reaper.cli import main
from reaper.config import Settings
from reaper.environment import variables_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/operations.md").read_text()


def table_rows(heading):
    """The cells of the first table under a heading."""
    part = TEXT.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shown(value):
    secret = getattr(value, "get_secret_value", None)
    return str(secret() if secret else value)


def test_the_settings_table_has_every_setting_with_its_variables_and_default():
    documented = {
        tuple(re.findall(r"`(\w+)`", names)): default.strip("`")
        for names, default, *_ in table_rows("## Settings")
    }
    defaults = {
        variables_of(Settings, name): field.default for name, field in Settings.model_fields.items()
    }

    assert documented.keys() == defaults.keys()
    for variables, default in defaults.items():
        wanted = {"derived", "none"} if default in {None, ()} else {shown(default)}
        assert documented[variables] in wanted, variables


def command(words):
    """The click command that `words` name."""
    found, context = main, click.Context(main)
    while words and isinstance(found, click.Group):
        name = words.pop(0)
        found = found.get_command(context, name)
        assert found is not None, name
    return found


@pytest.mark.parametrize(
    "line", sorted(set(re.findall(r"(?:^|`)reaper ([a-z][^`\n#]*)", TEXT, re.MULTILINE)))
)
def test_each_command_in_the_runbook_exists(line):
    """Each step of the runbook is a command that there is, with options that it has."""
    if line.split()[0] not in main.list_commands(click.Context(main)):
        pytest.fail(f"reaper {line}")
    found = command([word for word in line.split() if re.fullmatch(r"[a-z-]*[a-z]", word)][:2])
    known = {name for parameter in found.params for name in parameter.opts} | {"--help"}
    assert set(re.findall(r"--[a-z-]+", line)) <= known


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
    for anchor in re.findall(r"\]\(#([\w-]+)\)", TEXT):
        assert anchor in anchors
    for name in re.findall(r"\]\((\w+\.md)\)", TEXT):
        assert name in {"deployment.md", "architecture.md", "performance.md"}


def test_checks_named_in_the_runbook_exist(findings):
    """Every check the runbook sends somebody to is one of the doctor's."""
    known = set(findings())
    named = re.findall(r"[Cc]hecks? ((?:`[a-z-]+`(?:, | and )?)+)", TEXT)
    assert named
    for group in named:
        assert set(re.findall(r"`([a-z-]+)`", group)) <= known, group


def test_alerts_in_the_page_are_those_in_the_rules():
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text()
    alerts = [
        cells[0] for cells in table_rows("## Metrics and alerts") if cells[0].startswith("Reaper")
    ]
    assert sorted(alerts) == sorted(re.findall(r"- alert: (\w+)", rules))
