"""The sidecar's HTTP API: sources declare routes, and read what is in force and what was counted."""

from __future__ import annotations

import os
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from agents.gateway.callers import ANY, Caller, find_caller
from agents.gateway.desired import Malformed, Stale
from agents.gateway.prometheus import metrics
from agents.gateway.sidecar import Sidecar, Troubles
from agents.gateway.wire import DeclaredRoutes, GatewayRefusal, SourceName

MOST_BODY_BYTES = 4 << 20
MOST_CONNECTIONS = 64
REQUEST_SECONDS = 15.0

_declared = msgspec.json.Decoder(DeclaredRoutes)


class _Refused(Exception):
    """A request that is refused, with its HTTP status and the body of the answer."""

    def __init__(self, status: int, reason: str, message: str, sequence: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.refusal = GatewayRefusal(reason, message, sequence)


class SidecarHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "gpuwright-gateway"
    sys_version = ""
    timeout = REQUEST_SECONDS
    wbufsize = -1  # an answer in one piece
    server: SidecarServer

    def do_PUT(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        try:
            result = self._result()
        except _Refused as refused:
            self._send(refused.status, msgspec.json.encode(refused.refusal))
            return
        if isinstance(result, str):
            self._send(200, result.encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._send(200, msgspec.json.encode(result))

    def _result(self) -> Any:
        parts = urlsplit(self.path)
        if (self.command, parts.path) == ("GET", "/healthz"):
            return self._health()
        caller = self._caller()
        words = [unquote(word) for word in parts.path.split("/")[1:]]
        if self.command == "PUT" and words[:2] == ["v1", "routes"] and len(words) == 3:
            return self._put(words[2], caller)
        source = parse_qs(parts.query).get("source", [""])[0]
        if parts.path != "/metrics" and not caller.speaks_for(source):
            raise _Refused(403, "forbidden", f"this token may only read ?source={caller.source}")
        sidecar = self.server.sidecar
        match self.command, parts.path:
            case "GET", "/v1/routes":
                found = {name: sidecar.in_force(name) for name in ([source] if source else sidecar.sources())}
                return {name: routes for name, routes in found.items() if routes is not None}
            case "GET", "/v1/counters":
                return sidecar.counts(source)
            case "GET", "/metrics":
                if not caller.speaks_for(ANY):  # it shows the services and copies of every source
                    raise _Refused(403, "forbidden", "only a token of `*` may read /metrics")
                return metrics(sidecar)
        raise _Refused(404, "unknown", "known are /v1/routes, /v1/routes/SOURCE, /v1/counters, /metrics, /healthz")

    def _health(self) -> Any:
        condition = self.server.sidecar.condition()
        if not condition.in_force:
            hidden = "HAProxy does not have everything in force; the log of the sidecar says why"
            raise _Refused(503, "not_in_force", condition.trouble if self._may_read_all() else hidden)
        return {"inForce": True, "haproxyProcesses": condition.workers}

    def _may_read_all(self) -> bool:
        """Returns whether the caller may read what belongs to other sources; a missing token is no error here."""
        try:
            return self._caller().speaks_for(ANY)
        except _Refused:
            return False

    def _caller(self) -> Caller:
        """Returns the caller, or refuses a missing or unknown token."""
        if self.server.callers is None:
            return Caller(ANY)
        caller = find_caller(self.server.callers, self.headers.get("Authorization", "").removeprefix("Bearer ").strip())
        if caller is None:
            raise _Refused(401, "unauthorized", "this needs a known bearer token")
        return caller

    def _put(self, source: str, caller: Caller) -> Any:
        try:
            msgspec.convert({"source": source}, SourceName)
        except msgspec.ValidationError as error:
            raise _Refused(422, "malformed", str(error)) from error
        body = self._body()
        if not caller.speaks_for(source):
            raise _Refused(403, "forbidden", f"this token may not declare routes of source {source}")
        try:
            declared = _declared.decode(body)
            objection = caller.objection(declared)
            if objection:
                raise _Refused(403, "forbidden", objection)
            return self.server.sidecar.declare(source, declared)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, Malformed) as error:
            raise _Refused(422, "malformed", f"{error or type(error).__name__}") from error
        except Stale as error:
            raise _Refused(409, "stale", str(error), error.sequence) from error
        except Troubles as error:
            raise _Refused(503, "not_in_force", str(error)) from error
        except OSError as error:
            raise _Refused(503, "not_kept", f"the routes cannot be saved: {error}") from error

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise _Refused(411, "malformed", "the header Content-Length is missing or invalid")
        if len(length) > 12 or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            raise _Refused(413, "too_large", f"a request body has at most {MOST_BODY_BYTES} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            raise _Refused(400, "malformed", "the request body ended early")
        return body

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing."""


class SidecarServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers until shut down. `listen` is a path or HOST:PORT; over TCP callers need a token."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        sidecar: Sidecar,
        listen: str,
        callers: Mapping[str, Caller] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.sidecar = sidecar
        self.callers = callers
        self._tls = tls
        self._open: dict[socket.socket, float] = {}  # since when
        self._lock = threading.Lock()
        self._path = Path(listen) if listen.startswith("/") else None
        address: Any
        if self._path:
            self.address_family = socket.AF_UNIX
            self._path.unlink(missing_ok=True)
            address = listen
        else:
            host, _, port = listen.rpartition(":")
            self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            address = (host.strip("[]"), int(port))
        mask = os.umask(0o177)  # no other user may connect, from the first moment
        try:
            super().__init__(address, SidecarHandler)
        finally:
            os.umask(mask)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accepts a connection; when full, closes it, and also the oldest one if that is too slow."""
        with self._lock:
            full = len(self._open) >= MOST_CONNECTIONS
            if full:
                slowest, since = min(self._open.items(), key=lambda item: item[1])
                if time.monotonic() - since > REQUEST_SECONDS:
                    with suppress(OSError):
                        slowest.shutdown(socket.SHUT_RDWR)
            else:
                self._open[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        connection = request
        try:
            request.settimeout(REQUEST_SECONDS)
            if self._tls:
                connection = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    self._open[connection] = self._open.pop(request)
                connection.do_handshake()
            super().process_request_thread(connection, client_address or ("local", 0))
        except OSError:
            self.shutdown_request(connection)
        finally:
            with self._lock:
                self._open.pop(connection, None)
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores callers that hung up or were too slow."""

    def server_close(self) -> None:
        super().server_close()
        if self._path:
            self._path.unlink(missing_ok=True)
