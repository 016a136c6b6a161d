"""A receiver on loopback that does with each post what the test says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.patience import patience


@dataclass(frozen=True, slots=True)
class Post:
    """What came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Checks the signature as the specification of Standard Webhooks says, without our code."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        wanted = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
        return self.headers["webhook-signature"] == f"v1,{wanted}"


@dataclass
class Receiver:
    """`says` is the status of each answer, or what it does instead: hang, drip, flood, close, redirect."""

    address: str
    says: str = "200"
    answer: bytes = b""  # the body of each answer
    flooded_bytes: int = 0  # that went out before the other end closed
    posts: queue.Queue[Post] = field(default_factory=queue.Queue)
    released: threading.Event = field(default_factory=threading.Event)

    def next_post(self) -> Post:
        return self.posts.get(timeout=patience())


@contextmanager
def running_receiver(says: str = "200", answer: bytes = b"") -> Iterator[Receiver]:
    receiver = Receiver("", says, answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.posts.put(Post(self.path, headers, body))
            match receiver.says:
                case "hang":
                    receiver.released.wait()
                case "close":
                    self.close_connection = True
                case "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    while not receiver.released.wait(0.2):
                        self.wfile.write(b"x: y\r\n")
                case "flood":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n")
                    while receiver.flooded_bytes < 300_000_000:
                        receiver.flooded_bytes += self.wfile.write(b"{" * 100_000)
                case "redirect":
                    self._answer(307, {"Location": f"{receiver.address}/elsewhere"})
                case status:
                    self._answer(int(status), {})

        def do_GET(self) -> None:
            receiver.posts.put(Post(f"GET {self.path}", {}, b""))
            self._answer(200, {})

        def _answer(self, status: int, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(receiver.answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(receiver.answer)

        def handle(self) -> None:
            with suppress(OSError):  # who asked has gone, as the test wants it
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.released.set()
            server.shutdown()
            thread.join()
