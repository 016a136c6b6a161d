"""Pods as a DaemonSet's agent has them, each on a node, with tokens that Kubernetes has bound to them."""

from __future__ import annotations

import json
from pathlib import Path

from agents.kubernetes.api import Account, KubernetesApi
from tests.kubernetes.cluster import Cluster, Resource, User
from tests.kubernetes.kubeconfig import read_connection


def put_pod(cluster: Cluster, namespace: str, name: str, node: str, account: str) -> None:
    """Makes a pod on a node, as after it was scheduled there."""
    container = {"name": "agent", "image": "registry.example/agent:1"}
    spec: Resource = {"serviceAccountName": account, "containers": [container]}
    if node:
        spec["nodeName"] = node
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("-n", namespace, "create", "-f", "-", given=pod)


def bind_token(cluster: Cluster, namespace: str, pod: str, audience: str = "") -> str:
    """Returns a token as the kubelet mounts it into the pod; without an audience it is for the API server."""
    found = cluster.read("-n", namespace, "get", "pod", pod)
    words = ["create", "token", found["spec"]["serviceAccountName"], *([f"--audience={audience}"] if audience else [])]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--bound-object-uid={found['metadata']['uid']}")
    return cluster.kubectl("-n", namespace, *words, *bound).strip()


def open_as(user: User, folder: Path) -> KubernetesApi:
    """Returns the agent's own client, with what the kubelet mounts into its pod."""
    text = user.kubeconfig.read_text()
    url, authority = read_connection(text)
    folder.mkdir(parents=True)
    (folder / "token").write_text(json.loads(text)["users"][0]["user"]["token"])
    (folder / "ca.crt").write_text(authority)
    (folder / "namespace").write_text(user.namespace)
    return KubernetesApi(Account(folder), url)
