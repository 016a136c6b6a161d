"""The gate in this process, before an application that answers when a test lets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from app.access import Principal
from app.http import metrics
from app.http.capacity import Capacity
from app.http.gate import Gate
from app.problem import HttpProblem
from app.settings import Settings
from tests.app.http.small_app import authenticate, token

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
ADMIN = "/api/v1/services"
FEW = {"peer_failures_burst": 2.0, "peer_failures_per_second": 0.001}


@dataclass
class Call:
    """A request on its way, and what was sent back so far."""

    scope: dict[str, Any]
    incoming: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    sent: list[Message] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)  # clear: the client takes nothing
    task: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)

    async def over(self) -> Call:
        assert self.task
        await asyncio.wait_for(self.task, 20)
        return self

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode().lower(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


class Site:
    """The gate before an application that answers when the test lets it."""

    def __init__(self, settings: dict[str, Any] | None = None, capacity: dict[str, Any] | None = None) -> None:
        self.arrived: list[dict[str, Any]] = []  # the state of each request that the application got
        self.inside = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer: Callable[[Send], Awaitable[None]] | None = None
        self.ended: set[str] = set()  # whose token ends
        self.gate = Gate(
            self._app,
            settings=Settings(**{"rate_per_second": 0.001, "rate_burst": 1000, **(settings or {})}),
            authenticate=self._authenticate,
            admitted=lambda cookie: self._authenticate(f"Bearer {cookie}"),
            capacity=Capacity(**{"peer_per_second": 0.001, "peer_burst": 1000.0, **(capacity or {})}),
        )

    def _authenticate(self, header: str | None) -> Principal:
        if header == f"Bearer {token('slowed')}":
            raise HttpProblem("rate-limited", "wait")
        principal = authenticate(header)
        if principal.id in self.ended:
            raise HttpProblem("unauthorized", "this token was revoked")
        return principal

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("broke off")
        self.arrived.append(dict(scope["state"]))
        self.inside += 1
        try:
            await self.may_answer.wait()
            if self.answer:
                await self.answer(send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"yes"})
        finally:
            self.inside -= 1

    def call(
        self, method: str, path: str, who: str = "", body: bytes | None = None, peer: str = "10.0.0.1", **headers: str
    ) -> Call:
        """Sends a request; with a body of None it has none, and of b"" one that does not come yet."""
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            lines["authorization"] = f"Bearer {token(who)}"
        if body is not None:
            lines.setdefault("content-length", str(len(body) or 1))
        scope = {
            "type": "http", "method": method, "path": path, "query_string": b"", "client": (peer, 1234),
            "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
        }  # fmt: skip
        call = Call(scope)
        call.reads.set()
        if body:
            call.incoming.put_nowait({"type": "http.request", "body": body})
        call.task = asyncio.ensure_future(self.gate(scope, call.incoming.get, call.send))
        return call

    async def ask(self, method: str, path: str, who: str = "", body: bytes | None = None, **more: Any) -> Call:
        return await self.call(method, path, who, body, **more).over()

    async def statuses(self, count: int, method: str, path: str, who: str = "", **more: Any) -> list[int]:
        return [(await self.ask(method, path, who, **more)).status for _ in range(count)]

    async def until_inside(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.inside != count:
                await asyncio.sleep(0)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def read_metric(name: str) -> float:
    (line,) = [line for line in metrics.render()[0].decode().splitlines() if line.startswith(f"gpuwright_{name} ")]
    return float(line.split()[-1])
