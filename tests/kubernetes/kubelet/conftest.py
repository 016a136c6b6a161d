"""One cluster in which pods run for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.conftest import CONFORMANCE
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.kubelet.holding import PRIORITY
from tests.kubernetes.nodes import Place, RunningCluster, running_cluster
from tests.support.needs import skip_unless_ci


@pytest.fixture(scope="package")
def pod_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_cluster(tmp_path_factory.mktemp("running")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def priority(pod_cluster: RunningCluster) -> None:
    """Holders' priority, and the class of GPUs that NVIDIA's driver of DRA gives out."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": PRIORITY}}
    pod_cluster.kubectl("create", "-f", "-", given={**kind, "value": 1_000_000})
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    devices = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}}
    given = {**devices, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    pod_cluster.kubectl("create", "-f", "-", given=given)


@pytest.fixture
def place(pod_cluster: RunningCluster) -> Iterator[Place]:
    namespace = pod_cluster.make_namespace("pods")
    yield Place(pod_cluster, namespace)
    pod_cluster.remove_namespace(namespace)


@pytest.fixture
def node(pod_cluster: RunningCluster) -> Iterator[Kubelet]:
    with pod_cluster.running_node("node-a") as kubelet:
        yield kubelet
