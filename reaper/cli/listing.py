"""How a list of rows looks, as a table or as JSON, and the options that say which."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from reaper.cli import documents
from reaper.cli.text import table

PAYLOAD = click.option("--payload", is_flag=True, help="Show payloads too.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

Columns = Mapping[str, Callable[[Any], object]]
"""Headings in order, each with what it shows of a row."""


def echo_rows(
    found: Sequence[Any], columns: Columns, *, payload: bool, as_json: bool, nothing: str
) -> None:
    """Print rows: all their fields as JSON, or `columns` and, if asked for, the payload.

    Args:
        found: dataclasses with a `payload_json`.
        columns: what a table shows.
        payload: whether a table shows payloads.
        as_json: a JSON array instead of a table.
        nothing: the line that stands for an empty table.
    """
    if as_json:
        click.echo(documents.array(documents.one_object(row) for row in found))
        return
    if payload:
        columns = {**columns, "payload": lambda row: row.payload_json}
    rows = [[show(row) for show in columns.values()] for row in found]
    click.echo(table(list(columns), rows) if rows else nothing)
