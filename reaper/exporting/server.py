"""Answers `/metrics` and `/healthz` over HTTP. One thread per request; the reading is shared.

Bind it to an address that only Prometheus and the orchestrator reach: it has no password, and job
types are in it.
"""

import signal
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from reaper.errors import ConfigError
from reaper.exporting.families import families
from reaper.exporting.health import illness
from reaper.exporting.reading import Reading

REQUEST_SECONDS = 15.0
"""How long a client may take over its request: no slow one holds a thread for ever."""

Read = Callable[[], Reading]


class Exporter(ThreadingHTTPServer):
    """The server; `server_address` is where it listens once it is made.

    Raises:
        ConfigError: the address cannot be bound.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, read: Read) -> None:
        self.read = read
        try:
            found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
            self.address_family = found[0][0]
            super().__init__((address, port), _Request)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address} port {port}: {error.strerror}; choose another "
                "--address or --port"
            ) from None

    def serve_until_terminated(self) -> None:
        """Serve until SIGTERM or SIGINT. Call it in the main thread."""
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        threading.Thread(target=self.serve_forever, daemon=True, name="http").start()
        ended.wait()
        self.shutdown()
        self.server_close()


class _Scrape(Collector):
    """One reading as a collector, so that Prometheus' own code writes the answer."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> list[Metric]:
        return list(families(self._reading))


class _Request(BaseHTTPRequestHandler):
    server: Exporter
    timeout = REQUEST_SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        match urlsplit(self.path).path:
            case "/metrics":
                self._metrics()
            case "/healthz":
                self._healthz()
            case "/":
                self._answer(HTTPStatus.OK, "text/plain", b"reaper: /metrics /healthz\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics or /healthz\n")

    do_HEAD = do_GET  # noqa: N815 -- http.server's names

    def _metrics(self) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self.server.read()))
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, content_type, encode(registry))

    def _healthz(self) -> None:
        reason = illness(self.server.read())
        status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
        self._answer(status, "text/plain; charset=utf-8", f"{reason or 'ok'}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Say nothing: a scrape every 15 s is no event."""
