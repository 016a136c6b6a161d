"""Servers' logs, request by request: coefficients from the first half of the requests, the second half replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.data.missing_data import DataMissing
from lab.language.fit_requests import UNBOUNDED_TOKENS, RequestLog, find_kv_tokens, fit_requests, replay_log
from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost

FOLDER = Path("llm-logs")
LEARNED_REQUESTS = 150
PLAIN = "mean TPOT of the first half for every iteration"
AHEAD_SINCE = (0, 14)  # releases of vLLM compose an iteration while the one before it runs
BLOCK_TOKENS = 16
RANK = "data_parallel_rank"  # which of them served a request; most logs do not say


def rows(data: Path) -> list[AccuracyRow]:
    """Returns each log's memory, and mean TTFT, mean TPOT and 95th percentile of latency over its second half."""
    files = sorted((data / FOLDER).glob("*/requests.jsonl"))
    if not files:
        raise DataMissing(f"{data / FOLDER} has no */requests.jsonl")
    return [row for file in files for row in judge_log(str(file.relative_to(data)), *read_log(file))]


def judge_log(name: str, log: RequestLog, limits: BatchingLimits) -> list[AccuracyRow]:
    """Returns a log's rows. A memory that the log does not state is found from its times."""
    found = []
    told = find_kv_tokens(log, limits, LEARNED_REQUESTS)
    if limits.kv_tokens == UNBOUNDED_TOKENS:
        limits = replace(limits, kv_tokens=told or UNBOUNDED_TOKENS)
    elif told:
        note = f"tokens of memory: {limits.kv_tokens} stated, {told} found from the first {LEARNED_REQUESTS} requests"
        error = 100 * abs(told / limits.kv_tokens - 1)
        found.append(AccuracyRow("logs.kv", name, LEARNED_REQUESTS, error, {}, note=note))
    cost = fit_requests(log, limits, LEARNED_REQUESTS)
    times, even = (replay_log(log, limits, each) for each in (cost, _measured_pace(log)))
    ours, plain = (_figures(log, each.first_ms, each.last_ms) for each in (times, even))
    truth = _figures(log, log.first_ms, log.last_ms)
    for place, what in enumerate(("ttft", "tpot", "p95")):
        errors = [100 * abs(each[place] / truth[place] - 1) for each in (ours, plain)]
        note = f"measured {truth[place]:.5g} ms, replayed {ours[place]:.5g} ms"
        note += f"; learned from the first {LEARNED_REQUESTS} requests; {int(times.preempted.sum())} preemptions"
        count = len(log.inputs) - LEARNED_REQUESTS
        found.append(AccuracyRow(f"logs.{what}", name, count, errors[0], {PLAIN: errors[1]}, note=note))
    return found


def read_log(file: Path) -> tuple[RequestLog, BatchingLimits]:
    """Returns the log, in ms from its first arrival, and the limits of its server."""
    entries = [json.loads(line) for line in file.read_text().splitlines()]
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
        np.array([entry[RANK] for entry in entries]) if all(RANK in entry for entry in entries) else None,
    )
    return log, read_limits(json.loads((file.parent / "meta.json").read_text()))


def read_limits(meta: dict[str, Any]) -> BatchingLimits:
    """Returns what the server's description says of its limits, memory and ranks."""
    settings, cache = meta["engine_kwargs"], meta.get("kv_cache", {})
    scheduler = meta.get("resolved_config", {}).get("scheduler_config", {})
    release = tuple(int(part) for part in meta.get("vllm_version", "0").split(".")[:2])
    block = cache.get("block_size") or BLOCK_TOKENS
    blocks = cache.get("num_gpu_blocks")
    ranks = settings.get("data_parallel_size", 1)
    return BatchingLimits(
        settings["max_num_seqs"],
        settings["max_num_batched_tokens"],
        (blocks - 1) * block if blocks else UNBOUNDED_TOKENS,  # vLLM keeps a block for itself
        EngineForm(
            block,
            bool(cache.get("enable_prefix_caching", True)),
            ranks,
            ranks > 1 and bool(settings.get("enable_expert_parallel")),
            bool(scheduler.get("async_scheduling", release >= AHEAD_SINCE)),
        ),
    )


def _figures(log: RequestLog, first: NDArray[np.float64], last: NDArray[np.float64]) -> tuple[float, float, float]:
    part = slice(LEARNED_REQUESTS, None)
    latency = (last - log.arrivals_ms)[part]
    tpot = ((last - first) / (log.outputs - 1))[part]
    return float((first - log.arrivals_ms)[part].mean()), float(tpot.mean()), float(np.quantile(latency, 0.95))


def _measured_pace(log: RequestLog) -> IterationCost:
    tpot = (log.last_ms - log.first_ms)[:LEARNED_REQUESTS] / (log.outputs - 1)[:LEARNED_REQUESTS]
    return IterationCost(base_ms=float(tpot.mean()), token_ms=0.0)
