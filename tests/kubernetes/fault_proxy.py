"""A proxy before an API server or Ray's dashboard that loses, delays and refuses requests as networks do.

It also moves the server's clock: the header `Date` of every answer is so many seconds ahead of the truth.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread, local
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes.kubeconfig import read_connection, write_kubeconfig
from tests.support.patience import patience


class Fault(Enum):
    """What happens to one request: it is refused, gets lost before or after the server did it, or comes much later."""

    CONFLICT = 409
    GONE = 410
    BUSY = 429
    BROKEN = 500
    UNAVAILABLE = 503
    BROKEN_AFTER = -500
    UNAVAILABLE_AFTER = -503
    CUT_BEFORE = 1
    CUT_AFTER = 2
    CUT_WITHIN = 3  # half of the answer
    HANG_BEFORE = 4
    HANG_AFTER = 5
    LATE = 6  # the caller hears nothing, and the server gets it when `deliver_late` says so


REFUSED = (Fault.CONFLICT, Fault.GONE, Fault.BUSY, Fault.BROKEN, Fault.UNAVAILABLE)
AFTER = (Fault.BROKEN_AFTER, Fault.UNAVAILABLE_AFTER, Fault.CUT_AFTER, Fault.CUT_WITHIN, Fault.HANG_AFTER)
HANGING = (Fault.HANG_BEFORE, Fault.HANG_AFTER)


@dataclass(frozen=True, slots=True)
class Passed:
    """A request as it is handed on."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class FaultProxy(ThreadingHTTPServer):
    """`choose` names the fault of each request, or None."""

    daemon_threads = True

    def __init__(self, url: str, authority: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._address = urlsplit(url).netloc
        self._authority = authority
        self._trusted = ssl.create_default_context(cadata=authority) if authority else None
        self._kept = local()  # a thread's connection for what it reads
        self.choose: Callable[[str, str], Fault | None] = lambda method, path: None
        self.ahead = timedelta(0)
        self.late: list[Passed] = []
        self.met: list[tuple[str, Fault]] = []
        self.ended = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kubeconfig(self, path: Path, token: str) -> Path:
        """Writes one of the same user that goes through here."""
        # Nobody here checks it; without one each client would read all authorities of this machine.
        write_kubeconfig(path, self.url, self._authority, token)
        return path

    def forward(self, passed: Passed) -> tuple[int, dict[str, str], bytes]:
        """Hands a request on; a read on its thread's connection, since to shake hands takes longer than most answers.

        A write has a connection of its own, so that none is sent twice where the server has closed the kept one.
        """
        if passed.method == "GET":
            try:
                return self._ask(self._find_kept(), passed)
            except (OSError, http.client.HTTPException):
                self._kept.connection.close()
                return self._ask(self._find_kept(), passed)
        connection = self._connect()
        try:
            return self._ask(connection, passed)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._trusted:
            return http.client.HTTPSConnection(self._address, timeout=patience(), context=self._trusted)
        return http.client.HTTPConnection(self._address, timeout=patience())

    def _find_kept(self) -> http.client.HTTPConnection:
        if not hasattr(self._kept, "connection"):
            self._kept.connection = self._connect()
        found: http.client.HTTPConnection = self._kept.connection
        return found

    def close_kept(self) -> None:
        """Closes the connection of this thread, which ends."""
        if hasattr(self._kept, "connection"):
            self._kept.connection.close()

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, passed: Passed) -> tuple[int, dict[str, str], bytes]:
        connection.request(passed.method, passed.path, passed.body or None, passed.headers)
        answer = connection.getresponse()
        said = answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, said

    def deliver_late(self) -> list[int]:
        """Hands on what was held back, and returns what the server answered, which nobody hears."""
        held, self.late = self.late, []
        return [self.forward(passed)[0] for passed in held]

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of an answer in one packet
    server: FaultProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kept = {name: value for name, value in self.headers.items() if name.lower() in KEPT}
        passed = Passed(self.command, self.path, kept, body)
        fault = self.server.choose(self.command, self.path)
        if fault:
            self.server.met.append((self.command, fault))
        if fault in REFUSED:
            return self._refuse(fault)
        if fault in (Fault.CUT_BEFORE, Fault.LATE, Fault.HANG_BEFORE):
            if fault is Fault.LATE:
                self.server.late.append(passed)
            return self._hang_up(fault)
        status, headers, said = self.server.forward(passed)
        if fault is None:
            return self._send(status, headers, said)
        if fault in (Fault.BROKEN_AFTER, Fault.UNAVAILABLE_AFTER):
            return self._refuse(fault)
        if fault is Fault.CUT_WITHIN:
            self._send(status, headers, said, sent=len(said) // 2)
        return self._hang_up(fault)

    def finish(self) -> None:
        super().finish()
        self.server.close_kept()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 (names of the standard library)

    def _refuse(self, fault: Fault) -> None:
        code = abs(fault.value)
        message = f"the proxy says {fault.name}"
        body = json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": code}).encode()
        headers = {"content-type": "application/json", **({"retry-after": "3"} if fault is Fault.BUSY else {})}
        self._send(code, headers, body)

    def _hang_up(self, fault: Fault) -> None:
        if fault in HANGING:
            self.server.ended.wait()  # the caller gives up before
        self.close_connection = True

    def _send(self, status: int, headers: dict[str, str], said: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name in ("content-type", "retry-after"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Date", format_datetime(self.server.now, usegmt=True))
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said[:sent])
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the standard library)
        pass


KEPT = ("authorization", "content-type", "accept", "user-agent")


@contextmanager
def faulty_proxy(place: Path | str) -> Iterator[FaultProxy]:
    """Runs one before the API server of a kubeconfig, or a URL."""
    proxy = FaultProxy(place) if isinstance(place, str) else FaultProxy(*read_connection(place.read_text()))
    thread = Thread(target=proxy.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.ended.set()
        proxy.shutdown()
        thread.join()
        proxy.server_close()
