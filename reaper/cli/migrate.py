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
@click.option(
    "--grant",
    "role",
    metavar="ROLE",
    help="Give this role what beat, workers and the other commands need, nothing more. Repeat it "
    "after an upgrade.",
)
def migrate(with_job_tables: bool, role: str | None) -> None:
    """Create or upgrade the schema `reaper`. Safe to run twice, or twice at once.

    Needs CREATE on the database, or an empty schema `reaper` that the role owns.
    """
    database = open_database(check_schema=False)
    done = schema.migrate(database, with_job_tables=with_job_tables, grant_to=role)
    if done.made_job_tables:
        click.echo("created the job tables")
    for version in done.applied:
        click.echo(f"applied migration {version}")
    if role is not None:
        click.echo(f"the role {role} may run reaper")
    click.echo(f"the schema `reaper` is at version {done.version}")
