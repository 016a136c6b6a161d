"""A node of gpuwright's that is a node of a cluster: an agent's parts, simulated GPUs, and copies that are pods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.admission.reading import AllowList
from agents.kubernetes.api import KubernetesApi
from agents.kubernetes.following import Follower
from agents.node.cluster_notices import ClusterNotices
from agents.node.node import LocalNode
from agents.runtime.pods import PodRuntime
from agents.runtime.replica_set import PodSettings
from agents.seams.routes import Routes
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import RunningCluster
from tests.support.nodes import Machine, machine

BUDGET = ("gpuwright-copies", "--selector=gpuwright.io/part=copy", "--max-unavailable=0")


@dataclass(frozen=True, slots=True)
class PodNode:
    """One that agents may run on, one after the other."""

    name: str
    machine: Machine
    api: KubernetesApi

    @contextmanager
    def running_agent(
        self, incarnation: int = 1, routes: Routes | None = None, allow_list: AllowList | None = None
    ) -> Iterator[LocalNode]:
        """Runs an agent's parts until it is stopped; its copies stay."""
        runtime = PodRuntime(self.api, PodSettings(self.name, os.geteuid(), os.getegid(), IMAGE))
        nodes = Follower(self.api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={self.name}"})
        notices = ClusterNotices(nodes, self.name)
        parts: dict[str, Any] = {"runtime": runtime, "runtime_kind": "pods", "notices": notices}
        parts["allow_list"] = allow_list or AllowList()
        agent = self.machine.node(incarnation, routes, **parts)
        agent.start()
        try:
            yield agent
        finally:
            agent.stop()


@contextmanager
def pod_node(
    cluster: RunningCluster, namespace: str, name: str, folder: Path, images: Sequence[str] = ()
) -> Iterator[PodNode]:
    """Makes a node with a kubelet and one GPU; in the end all that runs there is gone."""
    with ExitStack() as around:
        made = around.enter_context(machine(folder / name, ["v100-16gb"]))
        around.enter_context(cluster.running_node(name, images=(IMAGE, *images)))
        yield PodNode(name, made, open_api(cluster, namespace, folder / f"account-{name}"))


@contextmanager
def budgeted_namespace(cluster: RunningCluster) -> Iterator[str]:
    """Makes a namespace as the chart does: no eviction there ends a copy."""
    name = cluster.make_namespace("copies")
    cluster.kubectl("-n", name, "create", "pdb", *BUDGET)
    try:
        yield name
    finally:
        cluster.remove_namespace(name)
