"""One cluster in which pods run for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.conftest import CONFORMANCE
from tests.kubernetes.nodes import RunningCluster, running_cluster
from tests.support.needs import skip_unless_ci


@pytest.fixture(scope="package")
def pod_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    if os.environ.get(CONFORMANCE):
        skip_unless_ci("it needs an API server of its own, and not your cluster")
    with running_cluster(tmp_path_factory.mktemp("running")) as cluster:
        yield cluster
