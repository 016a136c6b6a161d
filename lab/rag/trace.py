"""Reads RAGPulse's requests, and repeats them at the trace's local rate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.data.missing_data import DataMissing
from lab.llm_fleet.trace import mean_and_p95
from solvers.llm.iteration import TokenLengths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FILE = Path("ragpulse") / "days1-4.jsonl"
TIME, INPUT, OUTPUT, COMPONENTS = FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
PREFIX_ORDER = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
NEAR_SECONDS = 1800.0  # a repeated request comes at most so far from its original, more likely near it


@dataclass(frozen=True, eq=False)
class RagRequests:
    """Requests in order of arrival: their seconds since the recording began, and their tokens."""

    times: Floats
    inputs: Integers
    outputs: Integers

    @cached_property
    def lengths(self) -> TokenLengths:
        """Returns what a service declares of them: means and 95th percentiles."""
        return TokenLengths(*mean_and_p95(self.inputs), *mean_and_p95(self.outputs))

    @property
    def hours(self) -> int:
        """Returns the hours that they last, the last one begun."""
        return ceil(float(self.times[-1]) / 3600)

    def slice_seconds(self, since: float, until: float) -> RagRequests:
        """Returns the requests of these seconds, whose times count from the first of them."""
        first, last = np.searchsorted(self.times, (since, until))
        return RagRequests(self.times[first:last] - since, self.inputs[first:last], self.outputs[first:last])

    def repeated(self, times: int, seed: Sequence[int]) -> RagRequests:
        """Returns each request so many times, its copies spread by a triangle over NEAR_SECONDS before and after it.

        The rate is then the trace's local rate, smoothed and multiplied, and gaps at that rate are those of Poisson
        arrivals. What would come before the recording began or after it ended is mirrored into it.
        """
        rng = np.random.default_rng(seed)
        moved = np.repeat(self.times, times) + rng.triangular(-NEAR_SECONDS, 0.0, NEAR_SECONDS, times * len(self.times))
        end = self.hours * 3600.0
        moved = np.clip(np.where(moved > end, 2 * end - moved, np.abs(moved)), 0.0, end)
        order = np.argsort(moved, kind="stable")
        return RagRequests(moved[order], np.repeat(self.inputs, times)[order], np.repeat(self.outputs, times)[order])

    def peak_rate(self, window_seconds: float) -> float:
        """Returns the largest number of requests a second in any of the windows, one after the other."""
        counts = np.bincount((self.times // window_seconds).astype(np.int64), minlength=1)
        return float(counts.max()) / window_seconds


@dataclass(frozen=True, eq=False)
class RagTrace:
    """The recording: its requests, and how much of a prompt's beginning earlier prompts had."""

    requests: RagRequests
    known_share: float  # of a prompt's components: those at its beginning that an earlier prompt began with, too


def read_trace(data: Path, context_tokens: int) -> RagTrace:
    """Reads the recording; a request that is longer than the context is cut to it."""
    file = data / FILE
    if not file.is_file():
        raise DataMissing(f"{file} is missing; --data names a folder with it")
    entries = [_entry(file, number, line) for number, line in enumerate(file.read_text().splitlines(), 1) if line]
    if len(entries) < 2:
        raise DataMissing(f"{file} has {len(entries)} requests; at least 2 are needed")
    entries.sort(key=lambda entry: float(entry[TIME]))
    inputs = np.clip([int(entry[INPUT]) for entry in entries], 1, context_tokens - 1).astype(np.int64)
    outputs = np.clip([int(entry[OUTPUT]) for entry in entries], 1, context_tokens - inputs).astype(np.int64)
    times = np.array([float(entry[TIME]) for entry in entries])
    if times[0] < 0 or times[-1] <= times[0]:
        raise DataMissing(f"{file} has times of {times[0]:g} to {times[-1]:g} s; they must grow from 0 on")
    return RagTrace(RagRequests(times, inputs, outputs), _known_share([entry[COMPONENTS] for entry in entries]))


def _entry(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        raise DataMissing(f"line {number} of {file} is no JSON") from None
    missing = [name for name in FIELDS if not isinstance(entry, dict) or name not in entry]
    if missing:
        raise DataMissing(f"line {number} of {file} has no {missing[0]}; it needs {', '.join(FIELDS)}")
    found: dict[str, Any] = entry
    return found


def _known_share(prompts: Sequence[dict[str, Sequence[int]]]) -> float:
    """Returns the mean share of components at the beginning of a prompt with which an earlier prompt began, too."""
    known: set[tuple[int, ...]] = set()
    shares = []
    for prompt in prompts:
        components = [component for kind in PREFIX_ORDER for component in prompt.get(kind, ())]
        prefixes = [tuple(components[:count]) for count in range(1, len(components) + 1)]
        shares.append(sum(prefix in known for prefix in prefixes) / max(1, len(prefixes)))
        known.update(prefixes)
    return sum(shares) / len(shares)
