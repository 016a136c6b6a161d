"""The server: routes, the queue, one batch at a time, counters, readiness, and the drain that ends it."""

from __future__ import annotations

import asyncio
import json
from binascii import b2a_base64
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.http.connection import HttpConnection
from agents.http.loop import LoopServer, Routes
from agents.http.messages import HttpRequest
from agents.programs.serve.backends import Answers, Backend, BadInput, RawBody
from agents.programs.serve.batching import QueuedRequest, RequestQueue
from agents.prometheus.writing import Family, format_families, make_buckets, single

RAW, JSON = "application/octet-stream", "application/json"
RETRY = "Retry-After: 1\r\n"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server's options."""

    model: str
    batch: int
    max_batch: int  # the batch that its memory is sized for
    batch_timeout_ms: float
    most_waiting: int
    request_seconds: float = 15.0  # limits the arrival of a request, and the reading of its answer
    control_token: str = field(default="", repr=False)  # requests that control the server need it; empty: none do


class ModelServer:
    """Serves one model. A drained server calls `deaf` once to stop listening, and `finished` when all is answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ServerSettings,
        backend: Backend,
        deaf: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.ready = False  # loaded
        self.figures = ServerCounters()
        self._loop = loop
        self._backend = backend
        self._waiting = RequestQueue(settings.batch, settings.batch_timeout_ms / 1000)
        self._warming: list[HttpConnection] = []
        self._executing: list[QueuedRequest] | None = None
        self._timer: asyncio.TimerHandle | None = None
        routes: Routes = {
            "/healthz": {"GET": self._healthz, "HEAD": self._healthz},
            "/metrics": {"GET": self._metrics},
            "/v1/batch": {"GET": self._get_batch, "PUT": self._put_batch},
            "/v1/example": {"GET": self._example},
            "/v1/warmup": {"POST": self._warmup},
            "/v1/drain": {"POST": self._drain},
            f"/v1/models/{settings.model}:infer": {"POST": self._infer},
        }
        self._http = LoopServer(
            loop, settings.request_seconds, routes, settings.control_token, self._refuse, self._lost, self._is_working,
            deaf, finished,
        )  # fmt: skip
        self.accept = self._http.accept

    # Connections

    def _lost(self, connection: HttpConnection) -> None:
        pending = connection.waiting
        if isinstance(pending, QueuedRequest):
            self.figures.abandoned += 1
            self._waiting.give_up(pending)
        self._pump()

    # Routes

    def _say(self, connection: HttpConnection, status: int, answer: Mapping[str, Any], more: str = "") -> None:
        connection.answer(status, json.dumps(answer).encode(), close=self.draining, more=more)

    def _refuse(self, connection: HttpConnection, status: int, why: str, more: str = "") -> None:
        self._say(connection, status, {"error": why}, more)

    def _healthz(self, connection: HttpConnection, request: HttpRequest) -> None:
        state = "draining" if self.draining else "ready" if self.ready else "starting"
        self._say(connection, 200 if state == "ready" else 503, {"status": state})

    def _infer(self, connection: HttpConnection, request: HttpRequest) -> None:
        if self.draining or not self.ready or len(self._waiting) >= self.settings.most_waiting:
            self.figures.failed(rejected=True)
            why = "draining" if self.draining else "the queue is full" if self.ready else "starting"
            self._refuse(connection, 503, why, RETRY)
            return
        is_raw = request.headers.get(b"content-type", b"") == RAW.encode()
        pending = QueuedRequest(RawBody(request.body) if is_raw else request.body, self._loop.time(), connection)
        connection.waiting = pending
        self._waiting.add(pending)
        self._pump()

    def _get_batch(self, connection: HttpConnection, request: HttpRequest) -> None:
        timeout_ms = round(self._waiting.timeout_seconds * 1000, 6)
        answer = {"batch": self._waiting.batch, "batchTimeoutMs": timeout_ms, "maxBatch": self.settings.max_batch}
        self._say(connection, 200, answer)

    def _put_batch(self, connection: HttpConnection, request: HttpRequest) -> None:
        try:
            request_body = json.loads(request.body)
            batch, timeout_ms = (
                request_body["batch"],
                request_body.get("batchTimeoutMs", self._waiting.timeout_seconds * 1000),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._refuse(connection, 400, 'the body must be {"batch": 8, "batchTimeoutMs": 0}')
            return
        most = self.settings.max_batch
        if type(batch) is not int or not 1 <= batch <= most:
            self._refuse(connection, 422, f"batch is outside 1..{most}, which the memory is sized for")
        elif type(timeout_ms) not in (int, float) or not 0 <= timeout_ms <= 60_000:
            self._refuse(connection, 422, "batchTimeoutMs is outside 0..60000")
        else:
            self._waiting.batch, self._waiting.timeout_seconds = batch, timeout_ms / 1000
            self._get_batch(connection, request)
            self._pump()

    def _example(self, connection: HttpConnection, request: HttpRequest) -> None:
        path = f"/v1/models/{self.settings.model}:infer"
        body = self._backend.example()
        spelled = {"base64": b2a_base64(body, newline=False).decode()} if isinstance(body, RawBody) else {"body": body}
        self._say(connection, 200, {"path": path} | spelled)

    def _warmup(self, connection: HttpConnection, request: HttpRequest) -> None:
        if self.draining or not self.ready:
            self._refuse(connection, 503, "draining" if self.draining else "starting", RETRY)
            return
        self._warming.append(connection)
        self._pump()

    def _drain(self, connection: HttpConnection, request: HttpRequest) -> None:
        self.drain()
        self._say(connection, 200, {"open": self.open_requests})

    def _metrics(self, connection: HttpConnection, request: HttpRequest) -> None:
        gauges: dict[str, float | None] = {
            "queue": len(self._waiting),
            "open_requests": self.open_requests,
            "connections": len(self._http),
            "ready": self.ready and not self.draining,
            "batch_limit": self._waiting.batch,
            "batch_most": self.settings.max_batch,
            "batch_timeout_seconds": self._waiting.timeout_seconds,
            "sm_count": self._backend.sm_count,
            "memory_bytes": self._backend.memory_gib * 2**30,
        }
        text = self.figures.text(gauges).encode()
        connection.answer(200, text, close=self.draining, kind="text/plain; version=0.0.4")

    # The queue

    @property
    def open_requests(self) -> int:
        return len(self._waiting) + len(self._executing or ())

    def loaded(self) -> None:
        self.ready = True
        self._pump()

    def _pump(self) -> None:
        """Starts the next batch if it is time, and otherwise schedules it."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._executing is not None or not self.ready:
            return
        now = self._loop.time()
        if self._warming:
            warming, self._warming = self._warming, []
            self._executing = []
            self._backend.warm(self._waiting.batch, lambda answers: self._finish_warming(warming, now, answers))
            return
        starts = self._waiting.starts_at(now)
        if starts is None:
            self._http.check()
        elif starts > now and not self.draining:  # while draining, no other request will fill the batch
            self._timer = self._loop.call_at(starts, self._pump)
        else:
            batch = self._executing = self._waiting.take()
            bodies = [pending.body for pending in batch]
            self._backend.run(bodies, self._waiting.batch, lambda answers: self._finish_batch(batch, now, answers))

    def _finish_batch(self, batch: list[QueuedRequest], began: float, answers: Answers | Exception) -> None:
        now = self._loop.time()
        self.figures.batch(len(batch), now - began)
        self._executing = None
        for at, pending in enumerate(batch):
            if pending.client.lost:
                continue
            if isinstance(answers, Exception):
                self.figures.failed()
                self._refuse(pending.client, 500, "the model failed")
                continue
            answer = answers[at]
            self.figures.answered(now - pending.came)
            if isinstance(answer, BadInput):
                self._refuse(pending.client, 400, str(answer))
            else:
                pending.client.answer(200, answer, self.draining, kind=RAW if isinstance(answer, RawBody) else JSON)
        self._pump()

    def _finish_warming(self, warming: list[HttpConnection], began: float, answers: Answers | Exception) -> None:
        self._executing = None
        seconds = self._loop.time() - began
        self.figures.busy_seconds += seconds
        for connection in warming:
            if isinstance(answers, Exception):
                self._refuse(connection, 500, "the model failed")
            else:
                self._say(connection, 200, {"execMs": round(seconds * 1000, 3)})
        self._pump()

    # The end

    @property
    def draining(self) -> bool:
        return self._http.draining

    def drain(self) -> None:
        """Refuses new requests, answers those accepted, then finishes. A second call changes nothing."""
        if not self.draining:
            self._http.drain()
            self._pump()

    def _is_working(self) -> bool:
        return self._executing is not None or len(self._waiting) > 0 or bool(self._warming)

    def summary(self) -> str:
        did = self.figures
        return f"{did.requests} requests, {did.errors} of them failed, {did.abandoned} more abandoned"


# Equal to contract.LATENCY_EDGES_MS, which this small process does not load; a test compares them.
EDGES_MS = tuple(round(0.5 * 10 ** (step / 12), 4) for step in range(60))
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerCounters:
    """Totals. Each inference request that was answered counts once; one whose client left does not."""

    def __init__(self) -> None:
        self.requests = 0  # answered, successfully or not
        self.errors = 0  # answered with 5xx
        self.rejected = 0  # of the errors: the queue was full, or the server not ready
        self.abandoned = 0  # the client left before the answer
        self.batches = 0
        self.batched = 0  # requests in all batches
        self.busy_seconds = 0.0
        self._latency = [0] * (len(EDGES_MS) + 1)
        self._latency_sum = 0.0
        self._sizes = [0] * (len(SIZES) + 1)

    def answered(self, seconds: float) -> None:
        self.requests += 1
        self._latency[bisect_left(EDGES_MS, seconds * 1000)] += 1
        self._latency_sum += seconds

    def failed(self, rejected: bool = False) -> None:
        self.requests += 1
        self.errors += 1
        self.rejected += rejected

    def batch(self, size: int, seconds: float) -> None:
        self.batches += 1
        self.batched += size
        self.busy_seconds += seconds
        self._sizes[bisect_left(SIZES, size)] += 1

    def text(self, gauges: dict[str, float | None]) -> str:
        """Returns text for Prometheus; a gauge that is None is left out."""
        totals = ("requests", "errors", "rejected", "abandoned", "batches", "batched", "busy_seconds")
        edges = [f"{edge / 1000:.7g}" for edge in EDGES_MS]
        seconds = make_buckets(edges, self._latency, total=self._latency_sum)
        sizes = make_buckets(map(str, SIZES), self._sizes, total=self.batched)
        return format_families(
            (
                *(single(f"gpuwright_serve_{name}_total", "counter", getattr(self, name)) for name in totals),
                *(single(f"gpuwright_serve_{name}", "gauge", gauge) for name, gauge in gauges.items()),
                Family("gpuwright_serve_request_seconds", "histogram", "", seconds),
                Family("gpuwright_serve_batch_size", "histogram", "", sizes),
            )
        )
