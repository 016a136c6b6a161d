"""The load that `gpuwright assess --demo` was measured with: a made-up week. Writes clusters/demo_load.json.gz.

Usage: .venv/bin/python -m tests.clusters.demo_load
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from math import ceil, exp, pi, sin
from pathlib import Path
from random import Random
from typing import Any

from tests.clusters import demo

FILE = Path(__file__).resolve().parents[2] / "clusters" / "demo_load.json.gz"
START = 1_762_732_800  # a Monday, 00:00 UTC
STEP_SECONDS = 900
STEPS = 7 * 96


DAYS = (0.92, 0.95, 1.0, 0.94, 0.9, 0.55, 0.5)  # Monday to Sunday, of the highest


def _day(step: int, *, peak_hour: float = 14.0) -> float:
    """The load of a step, of the highest: a peak a day."""
    hour = step % 96 / 4
    return (0.25 + 0.75 * exp(-(((hour - peak_hour) / 4.5) ** 2))) * DAYS[step // 96]


def _series(
    seed: int,
    rate: Callable[[int], float],
    ready: Callable[[int, float], int],
    capacity: float,
    idle_ms: float,
    **lengths: float,
) -> dict[str, list[float | None]]:
    """Requests, replicas and the latency at 99 % that grows as each replica's rate nears its capacity."""
    random = Random(seed)
    found: dict[str, list[float | None]] = {"ratesPerSecond": [], "readyReplicas": [], "latencyMs": []}
    for step in range(STEPS):
        load = rate(step) * random.uniform(0.985, 1.015)
        count = ready(step, load)
        use = min(0.98, load / count / capacity) if count else 0.0
        latency = idle_ms * (1 + 0.6 * use / (1 - use)) * random.uniform(0.98, 1.02) if load else None
        for key, value in (("ratesPerSecond", load), ("readyReplicas", count), ("latencyMs", latency)):
            found[key].append(None if value is None else round(value, 2))
        for key, mean in lengths.items():
            found.setdefault(key, []).append(
                round(mean * (1 + 0.04 * sin(2 * pi * step / 96)) * random.uniform(0.99, 1.01))
            )
    return found


def recorded_load() -> dict[str, Any]:
    """The week. On Wednesday a change went wrong for some hours, and fewer replicas served the load, well enough."""
    wednesday = range(2 * 96, 3 * 96)
    few = {step for step in wednesday if 10 <= step % 96 / 4 < 19}
    workloads = {
        "shop/Deployment/ranker": _series(
            1, lambda step: 74 * _day(step), lambda step, load: 2 if step in few else max(4, ceil(load / 13)),
            60.0, 31.0,
        ),
        "shop/Deployment/embedder": _series(
            2, lambda step: 36 * _day(step), lambda step, load: 1 if step in few else max(2, ceil(load / 14)),
            70.0, 18.0,
        ),
        "chat/Deployment/mistral-7b-predictor": _series(
            3, lambda step: 5.2 * _day(step, peak_hour=15), lambda step, load: 2 if step in wednesday else 3,
            4.2, 2300.0, inputTokens=1450.0, outputTokens=260.0,
        ),
        "chat/LeaderWorkerSet/llama-70b": _series(
            4, lambda step: 1.1 * _day(step, peak_hour=15), lambda step, load: 1, 1.6, 4100.0, inputTokens=2100.0,
            outputTokens=410.0,
        ),
        "vision/Deployment/detector": _series(
            5, lambda step: 700 * _day(step, peak_hour=12), lambda step, load: max(12, ceil(load / 27)), 60.0, 24.0
        ),
        "vision/Deployment/ocr": _series(
            6, lambda step: 90 * _day(step, peak_hour=11), lambda step, load: 12, 25.0, 61.0
        ),
        "vision/Deployment/tagger": _series(7, lambda step: 130 * _day(step), lambda step, load: 8, 60.0, 14.0),
    }  # fmt: skip
    nodes = [item["metadata"]["name"] for item in demo.items() if item["kind"] == "Node"]
    return {
        "start": START, "stepSeconds": STEP_SECONDS, "steps": STEPS, "workloads": workloads,
        "passingGpus": {name: _passing(name) for name in nodes}, "gpus": list(_gpus()),
    }  # fmt: skip


# Of each workload: its node, how many GPUs of it, the most memory of one in GiB, and how active they are on average.
USES = (
    (("shop/Deployment/ranker",), "1-0", 2, 7.4, 0.16), (("shop/Deployment/ranker",), "1-1", 2, 7.3, 0.17),
    (("shop/Deployment/ranker",), "1-2", 1, 7.4, 0.16), (("shop/Deployment/ranker",), "1-3", 1, 7.4, 0.15),
    (("shop/Deployment/embedder",), "1-0", 1, 3.1, 0.11), (("shop/Deployment/embedder",), "1-1", 1, 3.1, 0.12),
    (("shop/Deployment/embedder",), "1-2", 1, 3.0, 0.11),
    (("shop/Deployment/speech",), "1-2", 2, 9.8, 0.31), (("shop/Deployment/speech",), "1-3", 2, 9.8, 0.29),
    (("chat/LeaderWorkerSet/llama-70b",), "4-0", 8, 36.2, 0.52),
    (("chat/Deployment/mistral-7b-predictor",), "4-1", 3, 36.0, 0.44),
    *(
        (("vision/Deployment/detector", "vision/Deployment/ocr", "vision/Deployment/tagger"), f"2-{at}", 4, 8.6, 0.09)
        for at in range(4)
    ),
)  # fmt: skip
PODS_OF_SHARED_GPU = 3


def _gpus() -> Iterator[dict[str, Any]]:
    """What dcgm-exporter had of the GPUs that services hold."""
    for holders, place, count, memory, active in USES:
        for at in range(count):
            yield {
                "device": f"GPU-{place}-{holders[0].split('/')[-1]}-{at}", "node": f"ip-10-0-{place}.ec2.internal",
                "holders": list(holders), "pods": PODS_OF_SHARED_GPU if len(holders) > 1 else 1,
                "memoryPeakGib": memory, "activityMean": active, "activityP95": round(2.1 * active, 2),
            }  # fmt: skip


def _passing(node: str) -> list[float]:
    """GPUs of jobs and notebooks: nightly scores on three spot nodes, and what researchers hold by day."""
    spot, research = node.startswith("ip-10-0-3-"), node.startswith("ip-10-0-5-")
    at = int(node.split(".")[0].split("-")[-1])
    if research:
        return [5.0 if step % 96 > 28 else 3.0 for step in range(STEPS)]
    return [1.0 if spot and at in (1, 2) and step % 96 < (14 + 4 * at) else 0.0 for step in range(STEPS)]


def packed() -> bytes:
    return gzip.compress(json.dumps(recorded_load(), separators=(",", ":"), sort_keys=True).encode(), mtime=0)


if __name__ == "__main__":
    FILE.write_bytes(packed())
