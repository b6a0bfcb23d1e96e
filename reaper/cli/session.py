"""What every command shares: the settings and database of this process, and JSON output."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import click

from reaper import logs
from reaper.celery import settings
from reaper.store import Database, schema


def open_database(*, check_schema: bool = True) -> Database:
    """Return the configured database, its schema checked.

    Raises:
        ConfigError: REAPER_DATABASE_URL is missing or malformed.
        StoreError: PostgreSQL cannot be reached, or the schema is missing or of another version.
    """
    logs.configure(settings.log_format, logging.WARNING)
    database = Database(settings.require_database_url(), application_name="reaper cli")
    if check_schema:
        schema.check(database)
    return database


def echo_json(value: Mapping[str, Any] | list[Any]) -> None:
    """Print one JSON document on stdout; dates as ISO 8601."""
    click.echo(json.dumps(value, default=str))
