"""GPUs of a cluster's node: pods of ours hold them, nothing starts where others may have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.kubernetes.following import Follower
from agents.node.gpu_holders import GpuHolders
from agents.node.state_folder import Credential, PodJoin, StateFolder
from agents.run.doctor.cluster import check_cluster
from agents.run.opening import AgentOptions
from agents.runtime.pods import PodRuntime
from agents.runtime.replica_set import PodSettings
from tests.agents.runtime.conformance import SLEEPER, launched
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.kubelet.holding import GPUS, holding, offering, read_pods
from tests.kubernetes.nodes import RunningCluster, make_pod
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture
def space(pod_cluster: RunningCluster, priority: None) -> Iterator[str]:
    name = pod_cluster.make_namespace("holders")
    yield name
    pod_cluster.remove_namespace(name)


def want_gpu(name: str) -> dict[str, Any]:
    """Returns a pod of somebody else that asks for a GPU."""
    return make_pod(name, "sleep 600", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})


def test_gpus_are_held_and_taken_again_and_nobody_else_gets_them(
    pod_cluster: RunningCluster, space: str, tmp_path: Path
) -> None:
    with (
        pod_cluster.running_node("held", gpus=GPUS) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as held,
    ):
        assert set(held.look()) == set(GPUS), "they are not held before their pods run"

        def all_held() -> bool:
            return not held.look()

        until(all_held, held.holders.unheld)
        assert len(read_pods(pod_cluster, space)) == len(GPUS)
        pod_cluster.kubectl("-n", space, "create", "-f", "-", given=want_gpu("other"))
        first = read_pods(pod_cluster, space)[0]["metadata"]
        pod_cluster.kubectl("-n", space, "delete", "pod", first["name"])

        def taken_again() -> bool:
            running = [pod for pod in read_pods(pod_cluster, space) if pod["status"]["phase"] == "Running"]
            return len(running) == len(GPUS) and first["uid"] not in {pod["metadata"]["uid"] for pod in running}

        until(taken_again, "a holder that was deleted is there again")
        until(all_held, held.holders.unheld)
        name = first["ownerReferences"][0]["name"]
        pod_cluster.kubectl("-n", space, "delete", "replicaset", name)
        until(lambda: len(read_pods(pod_cluster, space)) < len(GPUS), "a holder is gone")
        until(all_held, held.holders.unheld)
        until(taken_again, "one whose owner was deleted, too")
        # One that was quicker had to go again.
        others = [pod["status"]["phase"] for pod in read_pods(pod_cluster, space, "app=other")]
        assert others in ([], ["Pending"])


def test_a_gpu_that_another_pod_has_is_not_ours(pod_cluster: RunningCluster, space: str, tmp_path: Path) -> None:
    with (
        pod_cluster.running_node("shared", gpus=GPUS) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as held,
    ):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}}
        pod_cluster.kubectl("create", "-f", "-", given={**kind, "value": 2_000_000})
        pod = want_gpu("other")
        pod["spec"]["priorityClassName"] = "first"
        pod_cluster.kubectl("-n", space, "create", "-f", "-", given=pod)
        pod_cluster.kubectl("-n", space, "wait", "pod/other", "--for=condition=Ready", "--timeout=60s")

        def one_held() -> bool:
            return len(held.look()) == 1

        until(one_held, held.holders.unheld)
        (gpu,) = held.holders.unheld()
        until(lambda: "Insufficient nvidia.com/gpu" in next(iter(held.look().values())), held.holders.unheld)
        assert gpu in GPUS
        assert read_pods(pod_cluster, space, "app=other")[0]["status"]["phase"] == "Running"


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
        holding(pod_cluster, space, kubelet, tmp_path / "account") as held,
    ):
        assert all(said in why for why in held.look().values())
        assert set(held.holders.unheld()) == set(GPUS)
        assert read_pods(pod_cluster, space) == []


def test_a_node_that_gives_its_gpus_out_in_two_ways_is_refused_by_name(
    pod_cluster: RunningCluster, space: str, tmp_path: Path
) -> None:
    with (
        pod_cluster.running_node("twice", gpus=GPUS) as kubelet,
        holding(pod_cluster, space, kubelet, tmp_path / "account") as held,
        offering(pod_cluster, kubelet.name),
    ):
        assert all("given out twice: as nvidia.com/gpu, and by DRA" in why for why in held.look().values())
        assert set(held.holders.unheld()) == set(GPUS)


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
