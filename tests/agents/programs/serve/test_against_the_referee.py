"""The real server behaves as the batch server that judges plans: same arrivals, same latencies.

The server and its stub are the real ones, on a loop whose time is virtual.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from agents.http.connection import HttpConnection
from agents.http.messages import HttpRequest
from agents.programs.serve.backends import Stub
from agents.programs.serve.profile import StubProfile, read_words
from agents.programs.serve.server import ModelServer, ServerSettings
from solvers.planning.judge.kernels import count_served
from tests.support.soak import scaled

REQUESTS = scaled(60_000, 1_500)
BLOCKS = 30


class Handle:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualLoop:
    """Time passes when nothing is left to do at this moment."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Handle, Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, act: Callable[..., Any], *words: Any) -> Handle:
        handle = Handle()
        heapq.heappush(self._heap, (when, next(self._order), handle, act, words))
        return handle

    def call_later(self, seconds: float, act: Callable[..., Any], *words: Any) -> Handle:
        return self.call_at(self._now + seconds, act, *words)

    def run(self) -> None:
        while self._heap:
            when, _, handle, act, words = heapq.heappop(self._heap)
            if not handle.cancelled:
                self._now = max(self._now, when)
                act(*words)


class Client:
    """Notes when it was answered."""

    lost = False
    waiting: Any = None

    def __init__(self, loop: VirtualLoop, latencies: list[float]) -> None:
        self._loop = loop
        self._latencies = latencies
        self._asked = loop.time()

    def answer(self, status: int, body: bytes, close: bool = False, **more: Any) -> None:
        assert status == 200
        self._latencies.append(self._loop.time() - self._asked)


def run(arrivals: Any, batch: int, exec_ms: float, timeout_ms: float) -> tuple[list[float], float]:
    """Latencies in s in the order of the answers, and the part of the time that the server was busy."""
    loop = VirtualLoop()
    profile = StubProfile(read_words(f"{batch}:{exec_ms}"))
    settings = ServerSettings("model", batch, batch, timeout_ms, most_waiting=10**9)
    server = ModelServer(cast(Any, loop), settings, Stub(cast(Any, loop), profile, 0.0, {}), lambda: None, lambda: None)
    server.loaded()
    latencies: list[float] = []
    request = HttpRequest("POST", "/v1/models/model:infer", {}, b"")

    def arrive() -> None:
        server._infer(cast(HttpConnection, Client(loop, latencies)), request)

    for moment in arrivals:
        loop.call_at(float(moment), arrive)
    loop.run()
    return latencies, server.figures.busy_seconds / loop.time()


@pytest.mark.parametrize(("batch", "exec_ms"), [(1, 4.0), (4, 10.0), (8, 25.0), (32, 40.0)])
@pytest.mark.parametrize("timeout_ms", [0.0, 3.0, 50.0])
@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
def test_latencies_are_those_that_plans_are_judged_by(
    batch: int, exec_ms: float, timeout_ms: float, load: float
) -> None:
    rate = load * batch / (exec_ms / 1000)
    units = np.cumsum(np.random.default_rng(7).exponential(size=REQUESTS))
    latencies, busy = run(units / rate, batch, exec_ms, timeout_ms)
    assert len(latencies) == REQUESTS
    counted = REQUESTS // BLOCKS * BLOCKS
    for slo_ms in (exec_ms, exec_ms + timeout_ms / 2 + 0.1, exec_ms * 1.5 + timeout_ms, exec_ms * 3 + timeout_ms):
        share, _, expected_busy = count_served(
            units, batch, exec_ms / 1000, timeout_ms / 1000, rate, slo_ms / 1000, 0, BLOCKS
        )
        within = sum(latency <= slo_ms / 1000 * (1 + 1e-9) for latency in latencies[:counted])
        assert within / counted == pytest.approx(share, abs=2.5 / counted)
        assert busy == pytest.approx(expected_busy, rel=1e-6)
