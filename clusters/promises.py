"""The SLOs that annotations of workloads promise."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.manifests.numbers import finite_number
from clusters.estate import OURS, Estate, WorkloadName
from clusters.measured import LatencyPromise

PROMISE = re.compile(rf"{OURS}slo-p(?P<percentile>[0-9]{{2}}(?:\.[0-9])?)-ms")
TOKEN_PROMISES = {"slo-ttft-ms": "ttftMs", "slo-tpot-ms": "tpotMs"}
DEFAULT_PERCENTILE = 99.0
MOST_MS = 1e12


def read_promise(annotations: Mapping[str, str]) -> dict[str, float]:
    """Returns the promised SLO: `slo-p99-ms`, or `slo-ttft-ms` with `slo-tpot-ms`; empty if there is none."""
    tokens = {
        field: value
        for key, field in TOKEN_PROMISES.items()
        if (value := _positive(annotations.get(OURS + key, ""))) is not None
    }
    if len(tokens) == len(TOKEN_PROMISES):
        return {**tokens, "percentile": DEFAULT_PERCENTILE}
    for key, text in sorted(annotations.items()):
        match, value = PROMISE.fullmatch(key), _positive(text)
        if match and value is not None and 50 <= float(match["percentile"]) <= 99.9:
            return {"latencyMs": value, "percentile": float(match["percentile"])}
    return {}


def _positive(text: str) -> float | None:
    value = finite_number(text)
    return value if value is not None and 0 < value < MOST_MS else None


def read_latency_promises(estate: Estate) -> dict[WorkloadName, LatencyPromise]:
    """Returns what annotations promise for whole requests; times of tokens are promised otherwise."""
    found = {}
    for workload in estate.workloads:
        promise = read_promise(workload.annotations)
        if "latencyMs" in promise:
            source = f"annotation of {workload.name}"
            found[workload.name] = LatencyPromise(promise["latencyMs"], source, promise["percentile"])
    return found


def read_percentiles(estate: Estate) -> dict[WorkloadName, float]:
    """Returns the percentile of each promise."""
    promises = {workload.name: read_promise(workload.annotations) for workload in estate.workloads}
    return {name: promise["percentile"] for name, promise in promises.items() if promise}
