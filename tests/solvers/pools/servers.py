"""Servers of a language model for tests of pools."""

from __future__ import annotations

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.pools.servers import RatedServer

BIG = IterationCost(8.0, 0.05, 20.0, 0.15, 1e-4)
SMALL = IterationCost(10.0, 0.1, 30.0, 0.2, 2e-4)
LIMITS = BatchingLimits(16, 512, 40_000)
KV_BYTES = 327_680.0


def make_server(
    gpu_type: str, rate: float, cost: IterationCost = BIG, degree: int = 8, price: float = 1.0
) -> RatedServer:
    return RatedServer(gpu_type, degree, cost, LIMITS, rate, price)
