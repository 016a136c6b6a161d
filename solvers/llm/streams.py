"""Requests for simulations of language models: Poisson arrivals and log-normal lengths, seeded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import TokenLengths, log_normal


@dataclass(frozen=True, slots=True, eq=False)
class TokenStream:
    """Requests in order of arrival; a gap between two arrivals is 1 on average."""

    arrivals: NDArray[np.float64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    cached: NDArray[np.int64]  # of the input: keys and values that are there already

    def of(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> TokenStream:
        """Returns the stream of the chosen requests: of marked ones, or of those at these places."""
        return TokenStream(self.arrivals[chosen], self.inputs[chosen], self.outputs[chosen], self.cached[chosen])


@lru_cache(maxsize=8)
def drawn(requests: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns arrivals, and standard normals for inputs and outputs, determined by seed and number."""
    generator = np.random.default_rng([requests, seed])
    gaps = generator.standard_exponential(requests)
    return np.cumsum(gaps), generator.standard_normal(requests), generator.standard_normal(requests)


@lru_cache(maxsize=8)  # at most 24 MB each
def stream(lengths: TokenLengths, requests: int, seed: int) -> TokenStream:
    """Returns the requests of a seed: always the same."""
    return stream_of(lengths, *drawn(requests, seed))


def stream_of(
    lengths: TokenLengths,
    arrivals: NDArray[np.float64],
    input_normals: NDArray[np.float64],
    output_normals: NDArray[np.float64],
) -> TokenStream:
    """Returns requests of these lengths, rounded, at least 1 and at most what the context leaves."""
    inputs = np.minimum(_tokens(*lengths.input, input_normals), lengths.context_tokens - 1)
    outputs = np.minimum(_tokens(*lengths.output, output_normals), lengths.context_tokens - inputs)
    return TokenStream(arrivals, inputs, outputs, count_cached_tokens(lengths, inputs))


def count_cached_tokens(lengths: TokenLengths, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how many tokens of each input are there already."""
    cached: NDArray[np.int64] = np.minimum(np.floor(inputs * lengths.prefix_share).astype(np.int64), inputs - 1)
    return cached


def _tokens(mean: float, p95: float, normals: NDArray[np.float64]) -> NDArray[np.int64]:
    middle, deviation = log_normal(mean, p95)
    return np.maximum(1, np.rint(np.exp(middle + deviation * normals))).astype(np.int64)
