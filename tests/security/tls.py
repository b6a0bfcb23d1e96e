"""A certificate authority for one test, and a proxy that ends TLS in front of a plain server.

The servers from wheels are built without TLS; the client's side, which is what is tried, is real.
"""

import contextlib
import selectors
import socket
import ssl
import threading
from pathlib import Path
from typing import Self

import trustme

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""What libpq sends before TLS; a server that speaks it answers S."""


class Authority:
    """A CA, and one certificate of it for localhost and 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self.directory = directory
        self.ca_path = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_path))

    def server_context(self, *names: str) -> ssl.SSLContext:
        """Return a server's context with a certificate for `names`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def write_certificate(self, *names: str) -> tuple[Path, Path]:
        """Write a certificate for `names` and its key; return their paths."""
        issued = self._ca.issue_cert(*names)
        certificate, key = self.directory / "server.pem", self.directory / "server.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key


class TlsProxy:
    """Listens with TLS on a free port of 127.0.0.1 and passes on to `target`."""

    def __init__(
        self, target: tuple[str, int] | str, context: ssl.SSLContext, *, postgres: bool = False
    ) -> None:
        self._target = target
        self._context = context
        self._postgres = postgres
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.handshakes = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(client)
            if self._postgres:
                if client.recv(8, socket.MSG_WAITALL) != _SSL_REQUEST:
                    return
                client.sendall(b"S")
            secure = stack.enter_context(self._context.wrap_socket(client, server_side=True))
            self.handshakes += 1
            server = stack.enter_context(self._connect())
            _pass_on(secure, server)

    def _connect(self) -> socket.socket:
        if isinstance(self._target, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            return server
        return socket.create_connection(self._target)


def _pass_on(secure: ssl.SSLSocket, server: socket.socket) -> None:
    """Copy both ways until one side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(secure, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, secure)
        while True:
            for key, _ in selector.select():
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                data = source.recv(65_536)
                if not data:
                    return
                key.data.sendall(data)
                while isinstance(source, ssl.SSLSocket) and source.pending():
                    key.data.sendall(source.recv(65_536))
