"""The recorded estate that `gpuwright assess --demo` shows: objects of a made-up cluster, and what its owner pays."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from importlib import resources

from clusters.estate import WorkloadName
from clusters.gpu_use import MeasuredGpu
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.metrics.gpu_metrics import ACTIVITIES
from clusters.objects import ClusterObjects, objects_of

PRICES_NAME = "the demo's prices"


def read_demo() -> tuple[ClusterObjects, str]:
    """Returns the objects, and the text of the demo's file of prices."""
    packed = resources.files("clusters").joinpath("demo.json.gz").read_bytes()
    found = json.loads(gzip.decompress(packed))
    return replace(objects_of(found["items"]), origin="a recorded cluster"), found["prices"]


def read_demo_loads() -> tuple[MeasuredLoads, tuple[MeasuredGpu, ...]]:
    """Returns a made-up week of the demo's workloads, and what their GPUs did in it."""
    packed = resources.files("clusters").joinpath("demo_load.json.gz").read_bytes()
    found = json.loads(gzip.decompress(packed))
    gpus = tuple(
        MeasuredGpu(
            each["device"], each["node"], tuple(WorkloadName(*name.split("/")) for name in each["holders"]),
            each["pods"], each["memoryPeakGib"], each["activityMean"], each["activityP95"], ACTIVITIES[0][0],
        )
        for each in found["gpus"]
    )  # fmt: skip
    loads = MeasuredLoads(
        start=found["start"],
        step_seconds=found["stepSeconds"],
        steps=found["steps"],
        source="the demo's week",
        workloads={
            WorkloadName(*name.split("/")): WorkloadSeries(
                rates_per_second=tuple(series["ratesPerSecond"]),
                ready_replicas=tuple(series["readyReplicas"]),
                latency_ms=tuple(series["latencyMs"]),
                input_tokens=tuple(series.get("inputTokens", ())),
                output_tokens=tuple(series.get("outputTokens", ())),
            )
            for name, series in found["workloads"].items()
        },
        passing_gpus={node: tuple(row) for node, row in found["passingGpus"].items()},
    )
    return loads, gpus
