"""Reads sweeps of one server over open-loop rates and shapes of requests (guidellm's JSON)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.data.missing_data import DataMissing
from solvers.llm.iteration import BatchingLimits
from solvers.llm.sweeps.load import LoadTest, MeasuredLoad, TokenTimes

FOLDER = Path("inferno-exp1")
UNBOUNDED = "throughput"
WAITING_MS = 1000.0  # median TTFT from which requests must have waited for memory
LIMITS = BatchingLimits(sequences=1024, tokens_per_iteration=8192, kv_tokens=10**9)  # vLLM's defaults on such a GPU


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep: the load's name, the shape of its requests, and what was measured."""

    name: str
    shape: tuple[int, int]
    measured: MeasuredLoad
    median_ttft_ms: float = 0.0

    @property
    def requests_per_second(self) -> float:
        """Returns the rate; of requests one after the other, the rate that came of it."""
        load, times = self.measured.load, self.measured.times
        return load.rate_per_second or 1e3 / (times.ttft_ms + times.tpot_ms * (load.output_tokens - 1))


def read_sweeps(data: Path) -> tuple[list[SweepRun], list[SweepRun]]:
    """Returns the runs to judge, and the unbounded ones, which only train.

    An unbounded run whose requests wait for memory, of an unstated size, is in neither.
    """
    files = sorted((data / FOLDER).glob("sweep-*.json"))
    if not files:
        raise DataMissing(f"{data / FOLDER} has no sweep-*.json")
    runs = [_run(entry) for file in files for entry in json.loads(file.read_text())]
    judged = [run for run in runs if run.name != UNBOUNDED]
    return judged, [run for run in runs if run.name == UNBOUNDED and run.median_ttft_ms < WAITING_MS]


def _run(entry: dict[str, Any]) -> SweepRun:
    arguments = json.loads(entry["Args"])
    drawn = json.loads(entry["Request Loader"])["data"]
    lengths = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", drawn)}
    shape = lengths["prompt_tokens"], lengths["output_tokens"]
    strategy, seconds = arguments["strategy"], float(entry["Duration"])
    open_loop = bool(strategy.get("rate"))
    sent = sum(int(entry[f"{kind} Requests"]) for kind in ("Successful", "Incomplete", "Errored"))
    burst = int(strategy["rate"]) if open_loop and strategy.get("initial_burst") else 0
    rate = (sent - burst) / seconds if open_loop else 0.0  # as sent: the tool falls behind
    load = LoadTest(
        shape[0],
        shape[1],
        rate_per_second=rate,
        concurrency=0 if rate else int(entry["Incomplete Requests"]),  # in flight when the run was ended
        spread=1 - lengths["prompt_tokens_min"] / shape[0],
        seconds=seconds,
        burst=burst,
    )
    name = entry["Name"].partition("@")[0]
    ttft_ms = float(entry["Successful Time to first token ms mean"])
    if name == UNBOUNDED:  # all requests come at once at its start, and its TTFT is mostly theirs
        ttft_ms = 0.0
    times = TokenTimes(
        ttft_ms if ttft_ms > 0 else float("nan"),  # a mean below 0 holds a request whose time is missing
        float(entry["Successful Inter token latency ms mean"]),
    )
    return SweepRun(name, shape, MeasuredLoad(load, times), float(entry["Successful Time to first token ms median"]))
