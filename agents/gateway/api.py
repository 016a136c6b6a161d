"""The sidecar's HTTP API: sources declare routes, and read what is in force and what was counted."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from agents.gateway.callers import ANY, Caller, find_caller
from agents.gateway.desired import Malformed, Stale
from agents.gateway.prometheus import metrics
from agents.gateway.sidecar import Sidecar, Troubles
from agents.gateway.wire import DeclaredRoutes, GatewayRefusal, SourceName
from agents.host.wire import listen
from agents.http.messages import BadRequest, HttpRequest
from agents.http.threads import HttpAnswer, ServerLimits, ThreadServer

LIMITS = ServerLimits(connections=64, seconds=15.0, body_bytes=4 << 20)
BACKLOG = 64

_declared = msgspec.json.Decoder(DeclaredRoutes)


class _Refused(Exception):
    """A request that is refused, with its HTTP status and the body of the answer."""

    def __init__(self, status: int, reason: str, message: str, sequence: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.refusal = GatewayRefusal(reason, message, sequence)


def serve(
    sidecar: Sidecar, address: str, callers: Mapping[str, Caller] | None = None, tls: ssl.SSLContext | None = None
) -> ThreadServer:
    """Listens at a path or HOST:PORT; over TCP callers need a token."""
    if address.startswith("/"):
        listener = listen(Path(address), BACKLOG)
    else:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=BACKLOG)
    return ThreadServer(listener, SidecarApi(sidecar, callers).answer, _refuse, LIMITS, tls)


def _refuse(bad: BadRequest) -> HttpAnswer:
    reason = "too_large" if bad.status == 413 else "malformed"
    return HttpAnswer(bad.status, msgspec.json.encode(GatewayRefusal(reason, bad.why)))


class SidecarApi:
    """Answers requests for one sidecar."""

    def __init__(self, sidecar: Sidecar, callers: Mapping[str, Caller] | None) -> None:
        self._sidecar = sidecar
        self._callers = callers

    def answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            result = self._result(request)
        except _Refused as refused:
            more = "Retry-After: 1\r\n" if refused.status == 503 else ""
            # Without a length, what follows the header may be a body and not a request.
            return HttpAnswer(
                refused.status, msgspec.json.encode(refused.refusal), more=more, close=refused.status == 411
            )
        if isinstance(result, str):
            return HttpAnswer(200, result.encode(), "text/plain; version=0.0.4; charset=utf-8")
        return HttpAnswer(200, msgspec.json.encode(result))

    def _result(self, request: HttpRequest) -> Any:
        parts = urlsplit(request.path)
        if request.method not in ("GET", "PUT"):
            raise _Refused(405, "unknown", "only GET and PUT are allowed")
        if (request.method, parts.path) == ("GET", "/healthz"):
            return self._health(request)
        caller = self._caller(request)
        words = [unquote(word) for word in parts.path.split("/")[1:]]
        if request.method == "PUT" and words[:2] == ["v1", "routes"] and len(words) == 3:
            return self._put(words[2], request, caller)
        source = parse_qs(parts.query).get("source", [""])[0]
        if parts.path != "/metrics" and not caller.speaks_for(source):
            raise _Refused(403, "forbidden", f"this token may only read ?source={caller.source}")
        sidecar = self._sidecar
        match request.method, parts.path:
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

    def _health(self, request: HttpRequest) -> Any:
        condition = self._sidecar.condition()
        if not condition.in_force:
            hidden = "HAProxy does not have everything in force; the log of the sidecar says why"
            raise _Refused(503, "not_in_force", condition.trouble if self._may_read_all(request) else hidden)
        return {"inForce": True, "haproxyProcesses": condition.workers}

    def _may_read_all(self, request: HttpRequest) -> bool:
        """Returns whether the caller may read what belongs to other sources; a missing token is no error here."""
        try:
            return self._caller(request).speaks_for(ANY)
        except _Refused:
            return False

    def _caller(self, request: HttpRequest) -> Caller:
        """Returns the caller, or refuses a missing or unknown token."""
        if self._callers is None:
            return Caller(ANY)
        token = request.headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        caller = find_caller(self._callers, token)
        if caller is None:
            raise _Refused(401, "unauthorized", "this needs a known bearer token")
        return caller

    def _put(self, source: str, request: HttpRequest, caller: Caller) -> Any:
        try:
            msgspec.convert({"source": source}, SourceName)
        except msgspec.ValidationError as error:
            raise _Refused(422, "malformed", str(error)) from error
        if b"content-length" not in request.headers:
            raise _Refused(411, "malformed", "the header Content-Length is missing")
        if not caller.speaks_for(source):
            raise _Refused(403, "forbidden", f"this token may not declare routes of source {source}")
        try:
            declared = _declared.decode(request.body)
            objection = caller.objection(declared)
            if objection:
                raise _Refused(403, "forbidden", objection)
            return self._sidecar.declare(source, declared)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, Malformed) as error:
            raise _Refused(422, "malformed", f"{error or type(error).__name__}") from error
        except Stale as error:
            raise _Refused(409, "stale", str(error), error.sequence) from error
        except Troubles as error:
            raise _Refused(503, "not_in_force", str(error)) from error
        except OSError as error:
            raise _Refused(503, "not_kept", f"the routes cannot be saved: {error}") from error
