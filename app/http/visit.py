"""A request on its way through the server: its id, its answer, and its line in the log."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Message, Scope, Send

from app.http import answers, metrics
from app.http.buckets import Buckets
from app.http.lanes import PROBE, RequestLane
from app.http.logs import Clean, event
from app.http.redact import redact
from app.problem import HttpProblem

NoteSent = Callable[[bytes, int], None]  # a body, and how many bytes of it have just been sent

log = logging.getLogger("gpuwright.access")

PIECE = 64 * 1024  # bytes handed to the socket at a time, so that a slow reader fills no buffer with megabytes
SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=/-]{0,127}")
MOST_OF_ID = 64  # characters of it in an exemplar, all of which may have 128
NO_ROUTE = "(gate)"
UNMATCHED = "(none)"
CLIENT_LEFT = 499
# Refusals can come at ten thousand a second; the log gets so many a second and counts the rest.
REFUSAL_LINES = Buckets(20.0, 100.0, keys=16)
QUIET_STATUSES = frozenset({401, 408, 413, 415, 429, 503})


@dataclass(frozen=True, slots=True)
class RouteName:
    """A route as logs and metrics name it, where the router was not asked."""

    path_format: str


class Visit:
    """Wraps `send` of a request.

    Stores what the application answers, until `deliver` sends it: who reads slowly keeps no place at work. Only the
    answer of a lane that streams is sent at once.
    """

    __slots__ = (
        "_refusal_page",
        "_send",
        "_stored",
        "ended",
        "lane",
        "method",
        "peer",
        "principal_id",
        "request_id",
        "route",
        "scope",
        "sent_bytes",
        "started",
        "started_at",
        "status",
        "trace_id",
    )

    unlogged = 0  # refusals since the last line about a refusal

    def __init__(
        self,
        scope: Scope,
        send: Send,
        lane: RequestLane,
        wanted_id: str | None,
        peer: str,
        refusal_page: answers.RefusalPage | None,
    ) -> None:
        self.scope = scope
        self.lane = lane
        self.method: str = scope["method"]
        self.peer = peer
        self.principal_id = ""
        self.request_id = wanted_id if wanted_id and sane(wanted_id) else secrets.token_hex(8)
        self.route = NO_ROUTE
        self.started = False  # the head of the answer was sent
        self.ended = False  # the application has given the whole answer
        self.status = 0
        self.trace_id = ""  # if its span is sent to a collector
        self.sent_bytes = 0
        self.started_at = time.perf_counter()
        self._send = send
        self._refusal_page = refusal_page
        self._stored: list[Message] = []

    async def send(self, message: Message) -> None:
        """Takes a part of the answer from the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
        self._stored.append(message)
        if self.lane.streams:
            await self.deliver()

    def unsent(self) -> list[bytes]:
        """Returns what is stored of the answer's body."""
        return [message.get("body", b"") for message in self._stored if message["type"] == "http.response.body"]

    async def deliver(self, note_sent: NoteSent = lambda body, count: None) -> None:
        """Sends what is stored of the answer, at the pace of the client."""
        stored, self._stored = self._stored, []
        for message in stored:
            if message["type"] == "http.response.start":
                self.started = True
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", self.request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
                await self._send(message)
            elif message["type"] == "http.response.body":
                await self._send_pieces(message.get("body", b""), message.get("more_body", False), note_sent)

    async def _send_pieces(self, body: bytes, more_body: bool, note_sent: NoteSent) -> None:
        if len(body) <= PIECE:
            await self._piece(body, more_body)
            note_sent(body, len(body))
            return
        view = memoryview(body)
        last = len(body) - PIECE
        for at in range(0, len(body), PIECE):
            await self._piece(bytes(view[at : at + PIECE]), at < last or more_body)
            note_sent(body, PIECE)

    async def _piece(self, body: bytes, more_body: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        self.sent_bytes += len(body)

    async def refuse(self, problem: HttpProblem, *, close: bool = False) -> None:
        """Sends a refusal in place of an answer that was not started."""
        self._stored.clear()
        body = answers.encode_problem(problem, self.scope, self._refusal_page)
        headers = answers.headers_of(problem, body, self.scope, page=self._refusal_page, close=close)
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})
        await self.deliver()

    def close(self) -> None:
        """Counts and logs the answer."""
        seconds = time.perf_counter() - self.started_at
        status = self.status or CLIENT_LEFT
        exemplar = {"request_id": self.request_id[:MOST_OF_ID]}
        if self.trace_id:
            exemplar["trace_id"] = self.trace_id
        metrics.count_answer(self.method, self.route, status, None if self.lane.long else seconds, exemplar)
        if status == 429:
            metrics.RATE_LIMITED.labels(self.lane.name).inc()
        if status < 400 and (self.lane.node or self.lane is PROBE):
            # 8,640 a node and day: the metrics count them, the log has the others
            if log.isEnabledFor(logging.DEBUG):
                self._log(logging.DEBUG, status, seconds)
        elif status in QUIET_STATUSES and REFUSAL_LINES.take("", time.monotonic()):
            Visit.unlogged += 1
        elif log.isEnabledFor(logging.INFO):
            self._log(logging.INFO, status, seconds)

    def _log(self, level: int, status: int, seconds: float) -> None:
        fields: dict[str, object] = {
            "method": Clean(self.method[:20]),
            "path": Clean(answers.instance_of(self.scope)),
            "route": Clean(self.route),
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "sentBytes": self.sent_bytes,
            "peer": Clean(self.peer),
        }
        if self.principal_id:
            fields["principal"] = Clean(self.principal_id)
        agent = next((value for name, value in self.scope["headers"] if name == b"user-agent"), b"")
        if agent:
            fields["userAgent"] = Clean(redact(agent[:200].decode("latin-1")))
        if Visit.unlogged:
            fields["unloggedRefusals"], Visit.unlogged = Visit.unlogged, 0
        event(log, level, "request", fields)


def sane(request_id: str) -> bool:
    """Returns True if a client's id may go into our log: short, plain, and not a token sent by mistake."""
    return SANE_ID.fullmatch(request_id) is not None and redact(request_id) == request_id


def route_of(scope: Scope) -> str:
    """Returns the template of the route that answered, never the path itself."""
    context = scope.get("fastapi", {}).get("effective_route_context")  # routers included with a prefix
    template = getattr(context, "path_format", None) or getattr(scope.get("route"), "path_format", None)
    return template or UNMATCHED
