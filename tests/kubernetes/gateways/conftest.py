"""One Envoy Gateway for all tests of this folder, and a namespace with a gateway of ours for each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import CONFORMANCE
from tests.kubernetes.gateways.envoy_gateway import EnvoyGateway
from tests.kubernetes.gateways.site import COPIES_HOST, RoutedSite, running_gateways
from tests.kubernetes.server import ApiServer
from tests.support.haproxy import running_copies
from tests.support.needs import skip_unless_ci

Gateways = tuple[ApiServer, Cluster, EnvoyGateway]


@pytest.fixture(scope="package")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_gateways(tmp_path_factory.mktemp("gateways")) as running:
        yield running


@pytest.fixture
def site(gateways: Gateways, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutedSite]:
    server, cluster, _ = gateways
    with running_copies(8, host=COPIES_HOST) as copies:
        made = RoutedSite(server, cluster, copies, tmp_path_factory.mktemp("site"))
        try:
            yield made
        finally:
            made.close()
