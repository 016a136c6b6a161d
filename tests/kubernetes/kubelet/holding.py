"""What tests of held GPUs share: the holders of a node, and a driver's offer of its GPUs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.kubernetes.api import ApiAway, KubernetesApi
from agents.kubernetes.following import Follower
from agents.node.gpu_holders import ASK_SECONDS, GpuHolders
from agents.runtime.replica_set import PodSettings
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE, Kubelet
from tests.kubernetes.nodes import RunningCluster
from tests.support.patience import until

GPUS = ("GPU-a", "GPU-b")
PRIORITY = "holders"


@dataclass(frozen=True, slots=True)
class Holding:
    """The holders of a node, and what they are made of."""

    api: KubernetesApi
    nodes: Follower
    settings: PodSettings
    holders: GpuHolders

    def look(self) -> dict[str, str]:
        """Looks once the first lists have come; returns the GPUs that are not held, and why."""
        return look(self.holders)


@contextmanager
def holding(cluster: RunningCluster, namespace: str, kubelet: Kubelet, folder: Path) -> Iterator[Holding]:
    api = open_api(cluster, namespace, folder)
    nodes = Follower(api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={kubelet.name}"})
    nodes.start()
    until(lambda: nodes.wait(lambda _: True, 1.0), "the node is read")
    settings = PodSettings(kubelet.name, os.geteuid(), os.getegid(), IMAGE, PRIORITY)
    holders = GpuHolders(api, nodes, settings, itertools.count(step=ASK_SECONDS).__next__)  # each look asks
    try:
        yield Holding(api, nodes, settings, holders)
    finally:
        holders.close()
        nodes.close()


def look(holders: GpuHolders) -> dict[str, str]:
    def has_looked() -> bool:
        with suppress(ApiAway):
            holders.look(GPUS)
            return True
        return False

    until(has_looked, "pods are listed")
    return dict(holders.unheld())


def read_pods(cluster: RunningCluster, namespace: str, label: str = "gpuwright.io/part=holder") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.read("-n", namespace, "get", "pods", "-l", label)["items"]
    return found


@contextmanager
def offering(cluster: RunningCluster, node: str, **changed: Any) -> Iterator[None]:
    """Has NVIDIA's driver of DRA offer the node's GPUs; `changed` is what is different about the first."""
    devices: list[dict[str, Any]] = [
        {"name": f"gpu-{number}", "attributes": {"uuid": {"string": gpu}, "type": {"string": "gpu"}}}
        for number, gpu in enumerate(GPUS)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": node, "driver": "gpu.nvidia.com", "pool": pool, "devices": [devices[0] | changed, devices[1]]}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}}
    cluster.kubectl("create", "-f", "-", given={**kind, "spec": spec})
    try:
        yield
    finally:
        cluster.kubectl("delete", "resourceslice", node)
