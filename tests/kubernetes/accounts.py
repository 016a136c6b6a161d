"""The account of an agent's pod, in a folder as the kubelet fills it."""

from __future__ import annotations

import json
from pathlib import Path

from agents.kubernetes.api import Account, KubernetesApi
from tests.kubernetes.cluster import Cluster, Rule
from tests.kubernetes.kubeconfig import read_connection

# What an agent may do in the namespace of its copies; nothing but to read nodes elsewhere.
RUNS: tuple[Rule, ...] = (
    ("apps", "replicasets", "list,create,patch,delete"),
    ("", "pods", "list,watch"),
    ("", "pods/status", "patch"),
    ("", "pods/log", "get"),
)
READS_NODES: tuple[Rule, ...] = (("", "nodes", "list,watch"), ("resource.k8s.io", "resourceslices", "list"))


def open_api(cluster: Cluster, namespace: str, folder: Path) -> KubernetesApi:
    """Returns the API server as an agent has it that may do what it needs, and no more."""
    user = cluster.add_user(namespace, f"agent-{folder.name}")
    cluster.grant(user, RUNS)
    cluster.grant(user, READS_NODES, everywhere=True)
    folder.mkdir(parents=True)
    said = json.loads(user.kubeconfig.read_text())
    view = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    url, authority = read_connection(view)
    (folder / "token").write_text(said["users"][0]["user"]["token"])
    (folder / "ca.crt").write_text(authority)
    (folder / "namespace").write_text(namespace)
    return KubernetesApi(Account(folder), url)
