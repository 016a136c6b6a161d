"""One API server for all tests of this folder, and a namespace for each; or the cluster of the user's KUBECONFIG."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.filling import RecordedCluster
from tests.kubernetes.recorded import Recorder
from tests.kubernetes.scaled import ScalingServer
from tests.kubernetes.server import ApiServer, running_api_server
from tests.support.needs import skip_unless_ci

CONFORMANCE = "GPUWRIGHT_KUBE_CONFORMANCE"  # set by `make kube-conformance`


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Ours, which a test may fill with nodes: it has no kubelet, scheduler or user."""
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture(scope="package")
def scaling_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScalingServer]:
    """Ours, with kinds of autoscalers, controllers, and a user with the chart's role `scaler`."""
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_api_server(tmp_path_factory.mktemp("scaling")) as server:
        yield ScalingServer(server)


@pytest.fixture(scope="package")
def recorded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedCluster]:
    """One that no controller changes: it holds what each test puts into it."""
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_api_server(tmp_path_factory.mktemp("recorded")) as server:
        yield RecordedCluster(server)


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """What a test may change in namespaces of its own alone: it may be somebody's."""
    folder = tmp_path_factory.mktemp("users")
    if os.environ.get(CONFORMANCE):
        return Cluster(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"), folder)
    server: ApiServer = request.getfixturevalue("api_server")
    return Cluster(server.admin, folder)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """An empty one of this test alone."""
    name = cluster.make_namespace("test")
    yield name
    cluster.remove_namespace(name)


@pytest.fixture
def controllers(request: pytest.FixtureRequest) -> None:
    """Deployments have pods, and budgets of disruption count them."""
    if not os.environ.get(CONFORMANCE):
        request.getfixturevalue("api_server").start_controllers()


@pytest.fixture
def recorder(api_server: ApiServer) -> Recorder:
    return Recorder(api_server.admin)
