"""`reaper migrate`: create or upgrade the schema."""

import click

from reaper.cli.session import open_database
from reaper.store import schema


@click.command()
@click.option(
    "--with-job-tables",
    is_flag=True,
    help="Create the job tables too where none exist. Existing ones are never altered.",
)
def migrate(with_job_tables: bool) -> None:
    """Create or upgrade the schema `reaper`. Safe to run twice, or twice at once."""
    done = schema.migrate(open_database(check_schema=False), with_job_tables=with_job_tables)
    if done.made_job_tables:
        click.echo("created the job tables")
    for version in done.applied:
        click.echo(f"applied migration {version}")
    click.echo(f"the schema `reaper` is at version {done.version}")
