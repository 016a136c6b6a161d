"""A small control plane: it says which endpoints a test wants, and keeps what gateways report."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from agents.contract.gateways import CountsTaken, Endpoints, GatewayCounts

TOKEN = "gw_0123456789ab_secret"


class SmallPlane(ThreadingHTTPServer):
    """A control plane: its endpoints, what it knows of counts, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoints: Endpoints | bytes | None = None
        self.taken = 0
        self.status = 200
        self.asked: list[str] = []
        self.counts: list[GatewayCounts] = []
        self.open = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever a test kills hangs up."""

    @property
    def newest(self) -> GatewayCounts:
        """Returns the counts that were sent last; empty ones before the first."""
        return self.counts[-1] if self.counts else GatewayCounts("never", 0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallPlane

    def setup(self) -> None:
        super().setup()
        self.server.open += 1

    def finish(self) -> None:
        self.server.open -= 1
        super().finish()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        told, version = self.server.endpoints, int(self.path.split("after=")[1].split("&")[0])
        if isinstance(told, Endpoints) and told.version == version:
            told = None
            threading.Event().wait(0.1)  # as a poll does, which is answered later
        body = told if isinstance(told, bytes) else msgspec.json.encode(told) if told else b""
        self._answer(200 if told else 204, body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        self.server.counts.append(msgspec.json.decode(body, type=GatewayCounts))
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.server.taken = max(self.server.taken, self.server.counts[-1].sequence)
        self._answer(self.server.status, msgspec.json.encode(CountsTaken(self.server.taken)))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
