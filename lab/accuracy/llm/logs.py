"""One server's log, request by request: coefficients from the first half of the requests, the second half replayed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.data.missing_data import DataMissing
from lab.language.fit_requests import RequestLog, fit_requests, replayed
from solvers.llm.iteration import BatchingLimits, IterationCost

FOLDER = Path("llm-logs")
LEARNED_REQUESTS = 150
PLAIN = "mean TPOT of the first half for every iteration"
UNBOUNDED_TOKENS = 10**9  # memory is never the limit in this log: its KV-cache stays below a percent


def rows(data: Path) -> list[AccuracyRow]:
    """Returns mean TTFT, mean TPOT and the 95th percentile of latency over the second half."""
    name, log, limits = read_log(data)
    cost = fit_requests(log, limits, LEARNED_REQUESTS)
    ours = _figures(log, *replayed(log, limits, cost))
    truth = _figures(log, log.first_ms, log.last_ms)
    plain = _figures(log, *replayed(log, limits, _measured_pace(log)))
    found = []
    for place, what in enumerate(("ttft", "tpot", "p95")):
        errors = [100 * abs(each[place] / truth[place] - 1) for each in (ours, plain)]
        note = f"measured {truth[place]:.5g} ms, replayed {ours[place]:.5g} ms"
        note += f"; learned from the first {LEARNED_REQUESTS} requests"
        count = len(log.inputs) - LEARNED_REQUESTS
        found.append(AccuracyRow(f"logs.{what}", name, count, errors[0], {PLAIN: errors[1]}, note=note))
    return found


def read_log(data: Path) -> tuple[str, RequestLog, BatchingLimits]:
    """Returns the log, in ms from its first arrival, and the limits of its server."""
    files = sorted((data / FOLDER).glob("*/requests.jsonl"))
    if not files:
        raise DataMissing(f"{data / FOLDER} has no */requests.jsonl")
    entries = [json.loads(line) for line in files[0].read_text().splitlines()]
    settings = json.loads((files[0].parent / "meta.json").read_text())["engine_kwargs"]
    arrived, queued, first, last = (
        1e3 * np.array([entry[key] for entry in entries], float)
        for key in ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
    )
    offset = (queued - arrived).min()  # between the two clocks: the request that was queued soonest
    start = arrived[0]
    log = RequestLog(
        arrived - start,
        np.array([entry["input_toks"] for entry in entries]),
        np.array([entry["output_toks"] for entry in entries]),
        first - offset - start,
        last - offset - start,
    )
    limits = BatchingLimits(settings["max_num_seqs"], settings["max_num_batched_tokens"], UNBOUNDED_TOKENS)
    return str(files[0].relative_to(data)), log, limits


def _figures(log: RequestLog, first: NDArray[np.float64], last: NDArray[np.float64]) -> tuple[float, float, float]:
    part = slice(LEARNED_REQUESTS, None)
    latency = (last - log.arrivals_ms)[part]
    tpot = ((last - first) / (log.outputs - 1))[part]
    return float((first - log.arrivals_ms)[part].mean()), float(tpot.mean()), float(np.quantile(latency, 0.95))


def _measured_pace(log: RequestLog) -> IterationCost:
    tpot = (log.last_ms - log.first_ms)[:LEARNED_REQUESTS] / (log.outputs - 1)[:LEARNED_REQUESTS]
    return IterationCost(base_ms=float(tpot.mean()), token_ms=0.0)
