"""No request fails while shares change and every copy is a pod: real kubelet's work, real HAProxy, reloads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.runtime.pods import PodRuntime
from agents.runtime.replica_set import PodSettings
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import RunningCluster
from tests.proofs.handovers import prove
from tests.support.soak import SOAK, scaled


@pytest.mark.slow
@pytest.mark.parametrize(("packing", "mode"), [(60, "strict"), (97, "overlap")])
def test_no_request_fails_while_shares_of_pods_change(
    pod_cluster: RunningCluster, tmp_path: Path, packing: int, mode: str
) -> None:
    changes = scaled(200, 4)
    namespace = pod_cluster.make_namespace("handovers")
    name = f"handovers-{packing}"
    with pod_cluster.running_node(name):
        api = open_api(pod_cluster, namespace, tmp_path / "account")
        runtime = PodRuntime(api, PodSettings(name, os.geteuid(), os.getegid(), IMAGE))
        pause = 0.3 if SOAK else 0.1
        result = prove(packing, mode, changes, 90, 1, tmp_path, pause, runtime=runtime, runtime_kind="pods")
    pod_cluster.remove_namespace(namespace)
    assert (result.failed, result.changes, result.held) == ([], changes, 0)
