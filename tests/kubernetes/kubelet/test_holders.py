"""GPUs of a cluster's node: pods of ours hold them, nothing starts where others may have them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agents.kubernetes.api import ApiAway
from agents.kubernetes.following import Follower
from agents.node.gpu_holders import ASK_SECONDS, GpuHolders
from agents.node.state_folder import Credential, PodJoin, StateFolder
from agents.run.doctor.cluster import check_cluster
from agents.run.opening import AgentOptions
from agents.runtime.pods import PodRuntime
from agents.runtime.replica_set import PodSettings
from tests.agents.runtime.conformance import SLEEPER, launched
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE, Kubelet
from tests.kubernetes.nodes import RunningCluster, make_pod
from tests.support.patience import until

GPUS = ("GPU-a", "GPU-b")

pytestmark = pytest.mark.slow


@contextmanager
def holding(cluster: RunningCluster, namespace: str, kubelet: Kubelet, folder: Path) -> Iterator[GpuHolders]:
    api = open_api(cluster, namespace, folder)
    nodes = Follower(api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={kubelet.name}"})
    nodes.start()
    until(lambda: nodes.wait(lambda _: True, 1.0), "the node is read")
    settings = PodSettings(kubelet.name, os.geteuid(), os.getegid(), IMAGE, "holders")
    holders = GpuHolders(api, nodes, settings, itertools.count(step=ASK_SECONDS).__next__)  # each look asks
    try:
        yield holders
    finally:
        holders.close()
        nodes.close()


@pytest.fixture(scope="module", autouse=True)
def priority(pod_cluster: RunningCluster) -> None:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    pod_cluster.kubectl("create", "-f", "-", given={**kind, "metadata": {"name": "holders"}, "value": 1_000_000})


@pytest.fixture
def space(pod_cluster: RunningCluster) -> Iterator[str]:
    name = pod_cluster.make_namespace("holders")
    yield name
    pod_cluster.remove_namespace(name)


def pods(cluster: RunningCluster, namespace: str, label: str = "gpuwright.io/part=holder") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.read("-n", namespace, "get", "pods", "-l", label)["items"]
    return found


def want_gpu(name: str) -> dict[str, Any]:
    """Returns a pod of somebody else that asks for a GPU."""
    return make_pod(name, "sleep 600", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})


def test_gpus_are_held_and_taken_again_and_nobody_else_gets_them(
    pod_cluster: RunningCluster, space: str, tmp_path: Path
) -> None:
    with (
        pod_cluster.running_node("held", gpus=GPUS) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as holders,
    ):
        assert set(_look(holders)) == set(GPUS), "they are not held before their pods run"

        def all_held() -> bool:
            return not _look(holders)

        until(all_held, holders.unheld)
        assert len(pods(pod_cluster, space)) == len(GPUS)
        pod_cluster.kubectl("-n", space, "create", "-f", "-", given=want_gpu("other"))
        first = pods(pod_cluster, space)[0]["metadata"]
        pod_cluster.kubectl("-n", space, "delete", "pod", first["name"])

        def taken_again() -> bool:
            running = [pod for pod in pods(pod_cluster, space) if pod["status"]["phase"] == "Running"]
            return len(running) == len(GPUS) and first["uid"] not in {pod["metadata"]["uid"] for pod in running}

        until(taken_again, "a holder that was deleted is there again")
        until(all_held, holders.unheld)
        name = first["ownerReferences"][0]["name"]
        pod_cluster.kubectl("-n", space, "delete", "replicaset", name)
        until(lambda: len(pods(pod_cluster, space)) < len(GPUS), "a holder is gone")
        until(all_held, holders.unheld)
        until(taken_again, "one whose owner was deleted, too")
        # One that was quicker had to go again.
        others = [pod["status"]["phase"] for pod in pods(pod_cluster, space, "app=other")]
        assert others in ([], ["Pending"])


def test_a_gpu_that_another_pod_has_is_not_ours(pod_cluster: RunningCluster, space: str, tmp_path: Path) -> None:
    with (
        pod_cluster.running_node("shared", gpus=GPUS) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as holders,
    ):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}}
        pod_cluster.kubectl("create", "-f", "-", given={**kind, "value": 2_000_000})
        pod = want_gpu("other")
        pod["spec"]["priorityClassName"] = "first"
        pod_cluster.kubectl("-n", space, "create", "-f", "-", given=pod)
        pod_cluster.kubectl("-n", space, "wait", "pod/other", "--for=condition=Ready", "--timeout=60s")

        def one_held() -> bool:
            return len(_look(holders)) == 1

        until(one_held, holders.unheld)
        (gpu,) = holders.unheld()
        until(lambda: "Insufficient nvidia.com/gpu" in next(iter(_look(holders).values())), holders.unheld)
        assert gpu in GPUS
        assert pods(pod_cluster, space, "app=other")[0]["status"]["phase"] == "Running"


def test_what_is_left_of_a_node_that_is_deleted_goes_with_it(
    pod_cluster: RunningCluster, space: str, tmp_path: Path
) -> None:
    with pod_cluster.running_node("deleted", gpus=GPUS) as kubelet:
        api = open_api(pod_cluster, space, tmp_path / "account")
        nodes = Follower(api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={kubelet.name}"})
        nodes.start()
        until(lambda: nodes.wait(lambda _: True, 1.0), "the node is read")
        settings = PodSettings(kubelet.name, os.geteuid(), os.getegid(), IMAGE)
        holders, runtime = GpuHolders(api, nodes, settings), PodRuntime(api, settings, nodes)
        holders.look(GPUS)
        runtime.start(launched("a-1", SLEEPER, image=IMAGE))
        for following in (holders, runtime, nodes):
            following.close()
        owned = pod_cluster.read("-n", space, "get", "replicasets")["items"]
        assert len(owned) == len(GPUS) + 1
    until(lambda: not pod_cluster.read("-n", space, "get", "replicasets")["items"], "nobody waits for that node")


def _look(holders: GpuHolders) -> dict[str, str]:
    """Looks once the first list of pods has come."""

    def has_looked() -> bool:
        with suppress(ApiAway):
            holders.look(GPUS)
            return True
        return False

    until(has_looked, "pods are listed")
    return dict(holders.unheld())


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, "the device plugin shares GPUs of this node"),
        ({"nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu.replicas=4"),
    ],
)
def test_a_second_owner_of_the_gpus_is_refused_by_name(
    pod_cluster: RunningCluster, space: str, tmp_path: Path, labels: dict[str, str], said: str
) -> None:
    name = f"owned-{len(said)}"
    with (
        pod_cluster.running_node(name, gpus=GPUS, labels=labels) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as holders,
    ):
        assert all(said in why for why in _look(holders).values())
        assert set(holders.unheld()) == set(GPUS)
        assert pods(pod_cluster, space) == []


def test_gpus_that_dra_gives_out_are_refused_by_name(pod_cluster: RunningCluster, space: str, tmp_path: Path) -> None:
    with (
        pod_cluster.running_node("claimed") as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as holders,
    ):
        assert _look(holders) == {}, "nobody gives them out"
        devices = [{"name": f"gpu-{number}", "attributes": {}} for number in range(2)]
        pool = {"name": "claimed", "generation": 1, "resourceSliceCount": 1}
        spec = {"nodeName": "claimed", "driver": "gpu.nvidia.com", "pool": pool, "devices": devices}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "claimed"}}
        pod_cluster.kubectl("create", "-f", "-", given={**kind, "spec": spec})
        assert all("given out by DRA (gpu.nvidia.com)" in why for why in _look(holders).values())
        assert set(holders.unheld()) == set(GPUS)
        pod_cluster.kubectl("delete", "resourceslice", "claimed")


def test_the_doctor_says_what_the_cluster_lacks(
    pod_cluster: RunningCluster, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pod_cluster.running_node("examined", gpus=GPUS) as kubelet:
        open_api(pod_cluster, space, tmp_path / "account")
        options = AgentOptions(tmp_path / "state", runtime="pods", account=tmp_path / "account")
        host, port = pod_cluster.server.url.removeprefix("https://").split(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

        def said() -> dict[str, tuple[str, str]]:
            return {found.check: (found.level, found.found) for found in check_cluster(options, len(GPUS))}

        assert "the cluster has no node (not joined yet)" in said()["cluster node"][1]
        StateFolder(tmp_path / "state").keep_credential(Credential("https://plane:8080", kubelet.name, "token", ""))
        assert said()["gpu owner"] == ("ok", "pods of ours hold the 2 GPUs that the device plugin gives out")
        assert said()["cluster node"] == ("ok", "examined takes pods")
        joined = PodJoin(kubelet.name, "/token", {})
        named = Credential("https://plane:8080", "as-gpuwright-calls-it", "token", "", pod=joined)
        StateFolder(tmp_path / "state").keep_credential(named)
        assert said()["cluster node"] == ("ok", "examined takes pods")
        pod_cluster.kubectl("cordon", "examined")
        assert said()["cluster node"][0] == "warn"
        pod_cluster.kubectl("label", "node", "examined", "nvidia.com/gpu.sharing-strategy=mps")
        assert said()["gpu owner"][0] == "fail"
        (tmp_path / "account" / "token").write_text("another")
        assert "may not do what an agent does" in said()["kubernetes"][1]
