"""`reaper exporter`: metrics for Prometheus, and the dead-man's switch."""

import importlib.util

import click

from reaper.celery import app, settings
from reaper.errors import ConfigError

DEFAULT_PORT = 9808


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Listen on this port; 0 picks a free one.",
)
def exporter(address: str, port: int) -> None:
    """Serve /metrics and /healthz until SIGTERM or Ctrl-C.

    Database and broker are read on each scrape; where one is away the exporter still answers, and
    /healthz says 503 with the reason.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(
            "the exporter needs prometheus_client; install it with `pip install 'reaper[exporter]'`"
        )
    from reaper.exporting.reading import Reader  # noqa: PLC0415 -- needs the extra
    from reaper.exporting.server import Exporter  # noqa: PLC0415

    server = Exporter(address, port, Reader(app, settings).read)
    host, listening = server.server_address[:2]
    click.echo(f"reaper exporter listens on http://{_shown(host)}:{listening}/metrics")
    server.serve_until_terminated()


def _shown(host: object) -> str:
    text = host.decode() if isinstance(host, bytes) else str(host)
    return f"[{text}]" if ":" in text else text
