"""`reaper reap`: one tick in this process."""

import sys

import click

from reaper import reap as reaping
from reaper.celery import app, settings
from reaper.cli.session import echo_json, open_database
from reaper.errors import StoreError
from reaper.jobs import ReapResult
from reaper.publishing import Doorbell


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def reap(as_json: bool) -> None:
    """Run one tick now, without a worker: take back every expired lease and ring for the dead.

    Exit status 1 if the tick failed, 2 on a bad setting. Where the broker is away, the next
    redelivery rings; poison rows were set aside and are named: neither is a failure of the tick.
    """
    try:
        result = reaping.run_tick(open_database(), settings, Doorbell(app).publish, quiet_seconds=0)
    except StoreError as error:
        click.echo(f"reaper: the tick failed: {error}", err=True)
        sys.exit(1)
    counts = _counts(result)
    if as_json:
        echo_json(counts)
    else:
        click.echo(" ".join(f"{name}={count}" for name, count in counts.items()))
    _warn(result)


def _counts(result: ReapResult) -> dict[str, int]:
    return {
        "processed": result.processed,
        "released": result.released,
        "retried": result.retried,
        "dead_lettered": result.dead_lettered,
        "skipped": result.skipped,
        "deferred": len(result.deferred),
        "published": result.published,
    }


def _warn(result: ReapResult) -> None:
    for row in result.deferred:
        click.echo(
            f"reaper: job {row.job_id} run {row.run_number} attempt {row.attempt} was set aside: "
            f"SQLSTATE {row.sqlstate}, constraint {row.constraint or 'none'}",
            err=True,
        )
    if result.published < result.dead_lettered:
        click.echo(
            f"reaper: the broker took {result.published} of {result.dead_lettered} hook messages; "
            "the rest is rung by the next redelivery",
            err=True,
        )
