"""The estate of `gpuwright assess --demo`: 60 GPUs of one company. Writes clusters/demo.json.gz.

Usage: .venv/bin/python -m tests.clusters.demo
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.clusters.made_up import (
    Item,
    apart,
    autoscaler,
    budget,
    container,
    deployment,
    heading,
    leader_worker_set,
    node,
    pod,
    pod_spec,
    scaled_object,
)

FILE = Path(__file__).resolve().parents[2] / "clusters" / "demo.json.gz"
VLLM = "vllm/vllm-openai:v0.33.0"
TRITON = "nvcr.io/nvidia/tritonserver:25.08-py3"
# What the company pays: two p5 for three years, of which one runs, and the mean price of its spot machines.
PRICES = """\
currency: USD
prices:
- {instanceType: g5.xlarge, purchase: spot, perHour: 0.4021}
reservations:
- {instanceType: p5.48xlarge, region: us-east-1, count: 2, perHour: 31.464}
"""


def items() -> Iterator[Item]:
    yield from _nodes()
    yield from _shop()
    yield from _chat()
    yield from _vision()
    yield from _research()


def _nodes() -> Iterator[Item]:
    for at in range(4):
        yield node(f"ip-10-0-1-{at}.ec2.internal", 4, "NVIDIA-L40S", "g6e.12xlarge", pool="serving-l40s")
        yield node(
            f"ip-10-0-2-{at}.ec2.internal", 4, "Tesla-T4", "g4dn.12xlarge", memory_mib=15360, replicas=10,
            sharing="mps", pool="vision-mps",
        )  # fmt: skip
        yield node(
            f"ip-10-0-3-{at}.ec2.internal", 1, "NVIDIA-A10G", "g5.xlarge", memory_mib=23028, purchase="SPOT",
            pool="batch-spot",
        )  # fmt: skip
    for at in range(2):
        yield node(
            f"ip-10-0-4-{at}.ec2.internal", 8, "NVIDIA-A100-SXM4-40GB", "p4d.24xlarge", memory_mib=40960,
            pool="chat-a100",
        )  # fmt: skip
    yield node(
        "ip-10-0-5-0.ec2.internal", 8, "NVIDIA-H100-80GB-HBM3", "p5.48xlarge", memory_mib=81559,
        purchase="CAPACITY_BLOCK", pool="research-h100",
    )  # fmt: skip
    plain = node("ip-10-0-9-0.ec2.internal", 0, "", "m7i.4xlarge", pool="system", resources={})
    plain["metadata"]["labels"] = {
        key: value for key, value in plain["metadata"]["labels"].items() if "nvidia" not in key
    }
    yield plain


def _places(pool: int, count: int, nodes: int) -> list[str]:
    return list(islice(cycle(f"ip-10-0-{pool}-{at}.ec2.internal" for at in range(nodes)), count))


def _shop() -> Iterator[Item]:
    ranker = pod_spec("registry.example/shop/ranker:4.2", 1)
    promise = {"gpuwright.io/model": "ranker", "gpuwright.io/slo-p99-ms": "80"}
    yield from deployment("shop", "ranker", ranker, _places(1, 6, 4), annotations=promise)
    yield autoscaler("shop", "ranker", 4, 10)
    yield budget("shop", "ranker", minAvailable="50%")
    embedder, promise = pod_spec("registry.example/shop/embedder:1.9", 1), {"gpuwright.io/slo-p99-ms": "60"}
    yield from deployment("shop", "embedder", embedder, _places(1, 3, 4), annotations=promise)
    yield from scaled_object("shop", "embedder", 2, 6)
    speech = apart(pod_spec("registry.example/shop/speech:0.7", 2), "speech")
    yield from deployment("shop", "speech", speech, _places(1, 4, 4)[2:], replicas=3)


def _chat() -> Iterator[Item]:
    groups = [[place, place] for place in _places(4, 1, 2)]
    yield from leader_worker_set("chat", "llama-70b", pod_spec(VLLM, 4), groups)
    owner = heading("serving.kserve.io/v1beta1", "InferenceService", "chat", "mistral-7b")
    yield from deployment(
        "chat", "mistral-7b-predictor", pod_spec(VLLM, 1), ["ip-10-0-4-1.ec2.internal"] * 3, owner=owner
    )
    yield from deployment("chat", "drafts", pod_spec(VLLM, 1), [], replicas=0)


def _vision() -> Iterator[Item]:
    for name, count, slo_ms in (("detector", 24, 120), ("ocr", 12, 300), ("tagger", 8, 80)):
        promise = {"gpuwright.io/slo-p99-ms": str(slo_ms)}
        yield from deployment("vision", name, pod_spec(TRITON, 1), _places(2, count, 4), annotations=promise)
    yield autoscaler("vision", "detector", 3, 40)
    yield budget("vision", "detector", maxUnavailable=2)


def _research() -> Iterator[Item]:
    cron = heading("batch/v1", "CronJob", "research", "nightly-scores")
    for at in range(3):
        job = heading("batch/v1", "Job", "research", f"nightly-scores-2936{at}", cron)
        spec = {**pod_spec("registry.example/research/scores:3", 1), "restartPolicy": "Never"}
        job["spec"] = {"template": {"spec": spec}}
        yield job
        phase = "Succeeded" if at == 0 else "Running"
        place = f"ip-10-0-3-{at}.ec2.internal"
        yield pod("research", f"nightly-scores-2936{at}-x", spec, place, job, phase=phase)
    cluster = heading("ray.io/v1", "RayCluster", "research", "sweep")
    ray: dict[str, Any] = {
        "containers": [container("rayproject/ray:2.60.0-gpu", 2)],
        "initContainers": [container("registry.example/research/warm:1", 1)],
    }
    for at in range(2):
        yield pod("research", f"sweep-worker-{at}", ray, "ip-10-0-5-0.ec2.internal", cluster)
    yield pod("research", "notebook-ines", pod_spec("jupyter/gpu:2026-10", 1), "ip-10-0-5-0.ec2.internal")
    yield pod("research", "notebook-omar", pod_spec("jupyter/gpu:2026-10", 8), "")


def recorded() -> bytes:
    """The file: the objects, and the prices that the demo is given."""
    text = json.dumps({"prices": PRICES, "items": list(items())}, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


if __name__ == "__main__":
    FILE.write_bytes(recorded())
