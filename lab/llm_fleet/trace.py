"""Reads lengths and rate of Azure's trace of conversations, and draws requests from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.data.csv_rows import read_rows
from lab.data.missing_data import DataMissing
from solvers.llm.iteration import MOST_P95, TokenLengths
from solvers.llm.streams import TokenStream

FILE = Path("azure-llm") / "AzureLLMInferenceTrace_conv.csv"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TracedRequests:
    """The lengths of all requests, in order of arrival, and their mean rate."""

    inputs: Integers
    outputs: Integers
    rate_per_second: float

    @cached_property
    def lengths(self) -> TokenLengths:
        """Returns what a planner knows of the lengths: means and 95th percentiles."""
        return TokenLengths(*mean_and_p95(self.inputs), *mean_and_p95(self.outputs))

    def draw_requests(self, requests: int, seed: int, weights: Floats | None = None) -> TokenStream:
        """Returns Poisson arrivals of requests drawn with replacement; by these weights, if any, else all alike.

        A gap is 1 on average.
        """
        generator = np.random.default_rng([requests, seed])
        arrivals = np.cumsum(generator.standard_exponential(requests))
        chances = None if weights is None else weights / weights.sum()
        chosen = generator.choice(len(self.inputs), requests, p=chances)
        return TokenStream(arrivals, self.inputs[chosen], self.outputs[chosen], np.zeros(requests, dtype=np.int64))


def read_trace(data: Path, context_tokens: int) -> TracedRequests:
    """Reads the trace; a request that is longer than the context is cut to it."""
    file = data / FILE
    rows = read_rows(file, COLUMNS)
    entries = [(row[COLUMNS[0]], int(row[COLUMNS[1]]), int(row[COLUMNS[2]])) for row in rows]
    if len(entries) < 2:
        raise DataMissing(f"{file} has {len(entries)} requests; at least 2 are needed")
    seconds = (_time(entries[-1][0]) - _time(entries[0][0])).total_seconds()
    if seconds <= 0:
        raise DataMissing(f"{file} ends at {entries[-1][0]}, not after it begins")
    inputs = np.clip([each[1] for each in entries], 1, context_tokens - 1)
    outputs = np.clip([each[2] for each in entries], 1, context_tokens - inputs)
    return TracedRequests(inputs.astype(np.int64), outputs.astype(np.int64), (len(entries) - 1) / seconds)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text[:26])  # to the microsecond: the trace has a digit more


def mean_and_p95(values: Integers) -> tuple[float, float]:
    """Returns the mean and the 95th percentile, as far from it as that of a log-normal length can be."""
    mean = float(values.mean())
    return mean, min(max(mean, float(np.quantile(values, 0.95))), MOST_P95 * mean)
