"""Random servers of language models, their requests and their promises."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise, log_normal

TokenQuestion: TypeAlias = tuple[IterationCost, BatchingLimits, TokenLengths, TokenPromise]
PERCENTILES = (80.0, 90.0, 95.0, 98.0, 99.0, 99.5)


class Draws:
    """Draws numbers whose logarithms are even, determined by a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng([78, seed])

    def even(self, low: float, high: float) -> float:
        return math.exp(float(self.generator.uniform(math.log(low), math.log(high))))

    def or_zero(self, value: float) -> float:
        return float(self.generator.choice([0.0, value]))


def question(seed: int) -> TokenQuestion:
    """Returns a server and a promise that leaves a request alone on it 1.2 to 30 times the time that it needs."""
    draws = Draws(seed)
    even, generator = draws.even, draws.generator
    cost = IterationCost(
        even(0.5, 20), even(0.004, 0.2), draws.or_zero(even(3, 40)), draws.or_zero(even(0.005, 0.1)),
        draws.or_zero(even(1e-6, 1e-4)), draws.or_zero(even(1e-8, 1e-6)),
    )  # fmt: skip
    inputs, outputs = even(50, 6000), even(10, 1000)
    lengths = TokenLengths(
        inputs, inputs * generator.uniform(1.05, 3.6), outputs, outputs * generator.uniform(1.05, 3.6),
        draws.or_zero(generator.uniform(0, 0.8)), int(generator.choice([16384, 32768, 131072])),
    )  # fmt: skip
    sequences = round(even(4, 400))
    budget = int(generator.choice([256, 512, 1024, 2048, 4096, 8192, 16384]))
    percentile = float(generator.choice(PERCENTILES))
    longest = quantile(*lengths.input, 4.6) + quantile(*lengths.output, 2)
    kv_tokens = max(sequences * (inputs + outputs) * even(0.3, 4), min(lengths.context_tokens, longest) * even(1.05, 3))
    tail = quantile(*lengths.input, NormalDist().inv_cdf(percentile / 100))
    ttft_ms = alone_ms(cost, budget, min(tail, lengths.context_tokens - 1), lengths.prefix_share)
    tpot_ms = cost.milliseconds(0, 0, 1, tail + outputs)
    promise = TokenPromise(ttft_ms * even(1.5, 30), tpot_ms * even(1.2, 6), percentile)
    return cost, BatchingLimits(sequences, budget, int(kv_tokens)), lengths, promise


def quantile(mean: float, p95: float, normal: float) -> float:
    middle, deviation = log_normal(mean, p95)
    return math.exp(middle + normal * deviation)


def alone_ms(cost: IterationCost, budget: int, tokens: float, prefix_share: float) -> float:
    """Returns about how long the prompt of a request takes if no other runs."""
    new = tokens * (1 - prefix_share)
    parts = math.ceil(new / budget)
    computing = max(0.0, new * cost.token_ms - parts * cost.weights_ms)
    return (
        parts * cost.milliseconds(0, 0, 0, 0) + computing + cost.prompt_pair_ms * (tokens**2 - (tokens - new) ** 2) / 2
    )
