"""`reaper doctor`: checks the whole deployment and says what is wrong and the cure."""

import sys
from dataclasses import asdict
from typing import Any

import click

from reaper.celery import settings
from reaper.cli.looking import Look
from reaper.cli.session import echo_json, open_database
from reaper.cli.text import printable
from reaper.operations.diagnosis import Finding, Scene, Severity, diagnose, worst

_COLOURS = {Severity.OK: "green", Severity.WARN: "yellow", Severity.FAIL: "red"}
_STATUS = {Severity.OK: 0, Severity.WARN: 1, Severity.FAIL: 2}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print all findings as one JSON object.")
def doctor(as_json: bool) -> None:
    """Check database, broker, workers, handlers and settings. Changes nothing.

    Exit status 0: all is well; 1: a warning; 2: something reaper promises does not happen until
    you act.
    """
    scene = Scene(open_database(check_schema=False), settings, Look())
    findings: list[Finding] = []
    for finding in diagnose(scene):
        findings.append(finding)
        if not as_json:
            _echo(finding)
    found = worst(findings)
    if as_json:
        checks: list[dict[str, Any]] = [_document(finding) for finding in findings]
        echo_json({"status": found.value, "checks": checks})
    sys.exit(_STATUS[found])


def _echo(finding: Finding) -> None:
    word = click.style(f"{finding.severity.value:<4}", fg=_COLOURS[finding.severity])
    click.echo(f"{word}  {finding.id}: {printable(finding.found)}")
    if finding.cure:
        click.echo(f"      cure: {printable(finding.cure)}")


def _document(finding: Finding) -> dict[str, Any]:
    values = asdict(finding)
    return {
        "id": values["id"],
        "status": values["severity"],
        "found": values["found"],
        "cure": values["cure"],
    }
