"""A real HTTP server that gives the answers a test wrote down, in order, and keeps what it was sent."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Scripted:
    """`answers` are raw bytes to send; an empty one closes the connection without an answer."""

    answers: list[bytes]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)

    def header(self, at: int, name: str) -> str:
        """The value of a header of a request; empty if it was not sent."""
        head = self.requests[at].partition(b"\r\n\r\n")[0].decode("latin-1")
        found = [line.split(": ", 1)[1] for line in head.split("\r\n")[1:] if line.lower().startswith(name.lower())]
        return found[0] if found else ""


def answer(status: int, body: str = "{}", headers: Sequence[str] = (), media: str = "application/json") -> bytes:
    """An HTTP answer with this body."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {media}",
        f"Content-Length: {len(body.encode())}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@contextmanager
def scripted(*answers: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """Serve these answers on a free port of loopback."""
    played = Scripted(list(answers))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # a client that does not trust our certificate
                self._serve()

        def _serve(self) -> None:
            while request := self._read():
                played.requests.append(request)
                said = played.answers.pop(0) if played.answers else b""
                if not said:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    return  # a reset, not an orderly end
                self.wfile.write(said)
                if b"text/event-stream" in said or b"Connection: close" in said:
                    return

        def _read(self) -> bytes:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline()
                if not line:
                    return b""
                head += line
            length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            return head + (self.rfile.read(int(length[0].split(b":")[1])) if length else b"")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        played.url = f"http{'s' if tls else ''}://localhost:{server.server_address[1]}"
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield played
        server.shutdown()
        thread.join()
