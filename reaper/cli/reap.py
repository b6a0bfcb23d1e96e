"""`reaper reap`: one tick in this process."""

import sys

import click

from reaper import reap as reaping
from reaper.celery import app, settings
from reaper.cli.session import echo_json, open_database
from reaper.publishing import Doorbell


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def reap(as_json: bool) -> None:
    """Run one tick now, without a worker: take back every expired lease and ring for the dead.

    Exit status 1 if the tick failed. Where the broker is away, the next redelivery rings.
    """
    result = reaping.run_tick(open_database(), settings, Doorbell(app).publish, quiet_seconds=0)
    counts = {
        "processed": result.processed,
        "released": result.released,
        "retried": result.retried,
        "dead_lettered": result.dead_lettered,
        "skipped": result.skipped,
        "deferred": len(result.deferred),
        "published": result.published,
    }
    if as_json:
        echo_json(counts)
    else:
        click.echo(" ".join(f"{name}={count}" for name, count in counts.items()))
        for row in result.deferred:
            click.echo(
                f"set aside: job {row.job_id} run {row.run_number} attempt {row.attempt}, "
                f"SQLSTATE {row.sqlstate}, constraint {row.constraint or 'none'}",
                err=True,
            )
    if result.published < result.dead_lettered:
        click.echo(
            f"reaper: the broker took {result.published} of {result.dead_lettered} hook messages; "
            "the rest is rung by the next redelivery",
            err=True,
        )
    sys.exit(0)
