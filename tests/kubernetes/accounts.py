"""The account of an agent's pod, in a folder as the kubelet fills it."""

from __future__ import annotations

from pathlib import Path

from agents.kubernetes.api import KubernetesApi
from tests.kubernetes.agent_pods import open_as
from tests.kubernetes.cluster import Cluster, Rule

# What an agent may do in the namespace of its copies, as the chart's role has it; nothing but to read nodes elsewhere.
RUNS: tuple[Rule, ...] = (
    ("apps", "replicasets", "list,create,patch,delete"),
    ("", "pods", "list,watch"),
    ("", "pods/status", "patch"),
    ("", "pods/log", "get"),
    ("resource.k8s.io", "resourceclaims", "list,watch,create"),
)
READS_NODES: tuple[Rule, ...] = (("", "nodes", "list,watch"), ("resource.k8s.io", "resourceslices", "list"))


def open_api(cluster: Cluster, namespace: str, folder: Path) -> KubernetesApi:
    """Returns the API server as an agent has it that may do what it needs, and no more."""
    user = cluster.add_user(namespace, f"agent-{folder.name}")
    cluster.grant(user, RUNS)
    cluster.grant(user, READS_NODES, everywhere=True)
    return open_as(user, folder)
