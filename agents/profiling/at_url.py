"""Measures a model that is served at a URL: only what its server lets change can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from agents.contract.campaigns import CopySetting, MeasuredSetting
from agents.host import clocks
from agents.profiling.batches import TimingEffort, time_batches
from agents.profiling.closed_loop import ClosedLoop, LoopFailed
from agents.profiling.example import ExampleRequest, parse_example
from agents.seams.traffic import Served
from agents.talk.copy_client import CopyPlace, CopyReply, TcpCopyClient
from agents.talk.scraping import read_served
from agents.templates import Probe

ANSWER_SECONDS = 10.0  # to a question about the server
FILL_MS = 2000.0  # how long the server waits for a batch to fill; the requests come within milliseconds


class _BatchAnswer(msgspec.Struct, rename="camel"):
    batch: int
    batch_timeout_ms: float = 0.0
    max_batch: int = 0


class NoAddress(LoopFailed):
    """A URL that names no model server."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The batch of a server as it was found, and the largest that may be set; 1 if it cannot be set."""

    batch: int
    timeout_ms: float
    largest: int


class ModelAtUrl:
    """A running gpuwright-serve, or a server with the same paths `/v1/example`, `/v1/batch` and `/metrics`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or port is None or parts.path not in ("", "/"):
            raise NoAddress(f"{url!r} is no address of a model server; allowed is http://HOST:PORT")
        self._host, self._port = parts.hostname, port
        self._client = TcpCopyClient(self._host)

    def example(self) -> ExampleRequest:
        """Returns a request that the model can answer."""
        reply = self._ask("GET", "/v1/example")
        if not reply.ok:
            raise LoopFailed(f"{self._explain_failure('/v1/example', reply)}; it must name a request to send")
        return parse_example(reply.body)

    def batch_range(self) -> BatchRange:
        """Returns what batches can be measured, found out by setting the present one again."""
        reply = self._ask("GET", "/v1/batch")
        if not reply.status:
            raise LoopFailed(self._explain_failure("/v1/batch", reply))
        if not reply.ok:
            return BatchRange(1, 0.0, 1)
        try:
            found = msgspec.json.decode(reply.body, type=_BatchAnswer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LoopFailed(f"the answer of /v1/batch cannot be read: {error}") from error
        is_free = self._put(found.batch, found.batch_timeout_ms)
        return BatchRange(found.batch, found.batch_timeout_ms, max(found.max_batch, found.batch) if is_free else 1)

    def restore(self, found: BatchRange) -> None:
        """Sets the batch to what it was."""
        self._put(found.batch, found.timeout_ms)

    def measure(
        self, sequence: int, setting: CopySetting, found: BatchRange, effort: TimingEffort
    ) -> MeasuredSetting:  # fmt: skip
        """Asks the server in a closed loop. Raises LoopFailed."""
        if found.largest > 1 and not self._put(setting.batch, FILL_MS):
            raise LoopFailed(f"the server does not take batch {setting.batch}; it takes 1..{found.largest}")
        example = self.example()
        request = example.spell(self._host, self._port)
        with ClosedLoop(self._host, self._port, request, setting.batch) as loop:
            times = time_batches(loop, self._read_served, effort, _go_on)
        served = self._read_served()
        return MeasuredSetting(
            sequence,
            setting,
            clocks.date(),
            latency_ms=times.latency_ms,
            spread_ms=times.spread_ms,
            samples=times.samples,
            source=times.source,
            memory_gib=(served.memory_gib or 0.0) if served else 0.0,
        )

    def _read_served(self) -> Served | None:
        reply = self._ask("GET", "/metrics")
        return read_served("gpuwright", reply.body) if reply.ok else None

    def _put(self, batch: int, timeout_ms: float) -> bool:
        body = msgspec.json.encode({"batch": batch, "batchTimeoutMs": timeout_ms}).decode()
        return self._ask("PUT", "/v1/batch", body).ok

    def _explain_failure(self, path: str, reply: CopyReply) -> str:
        why = f"answered {reply.status}" if reply.status else f"did not answer: {reply.why}"
        return f"GET {path} at {self._host}:{self._port} {why}"

    def _ask(self, method: str, path: str, body: str = "") -> CopyReply:
        return self._client.ask(CopyPlace(self._port), Probe(method, path, body, ANSWER_SECONDS))


def _go_on(elapsed: float) -> None:
    """Breaks nothing off."""
