"""GPUs that DRA gives out: pods of ours share a claim of each; the scheduler is real, no driver prepares claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from agents.kubernetes.names import name_claim
from agents.node import gpu_claims
from agents.node.gpu_holders import GpuHolders
from agents.runtime.pods import GpuUnheld, PodRuntime
from tests.agents.runtime.conformance import SLEEPER, launched
from tests.kubernetes.cluster import Resource
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.kubelet.holding import GPUS, holding, look, offering, read_pods
from tests.kubernetes.nodes import Place, RunningCluster, make_pod
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture
def space(pod_cluster: RunningCluster, priority: None) -> Iterator[Place]:
    made = Place(pod_cluster, pod_cluster.make_namespace("claims"))
    yield made
    made.kubectl("delete", "replicasets", "--all")
    made.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")  # their nodes may be gone
    made.kubectl("delete", "resourceclaims", "--all")  # so that no claim of this test has a GPU of the next one
    pod_cluster.remove_namespace(made.namespace)


def claim_any(name: str) -> list[Resource]:
    """Returns a pod of somebody else, and its claim of any GPU."""
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": 1}
    spec = {"devices": {"requests": [{"name": "any", "exactly": exactly}]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    claims: dict[str, Any] = {"resourceClaims": [{"name": "any", "resourceClaimName": name}]}
    return [claim, make_pod(name, "sleep 600", **claims, container={"resources": {"claims": [{"name": "any"}]}})]


def read_claims(space: Place) -> dict[str, Resource]:
    return {found["metadata"]["name"]: found for found in space.read("resourceclaims")["items"]}


def find_device(claim: Resource) -> str:
    (found,) = claim["status"]["allocation"]["devices"]["results"]
    return str(found["device"])


def list_users(claim: Resource) -> set[str]:
    return {user["name"] for user in claim["status"].get("reservedFor", ())}


def is_held(holders: GpuHolders, gpus: Sequence[str]) -> bool:
    with suppress(GpuUnheld):
        return bool(holders.find_claims(gpus))
    return False


def test_copies_share_the_claims_of_holders_and_nobody_else_gets_the_gpus(space: Place, tmp_path: Path) -> None:
    cluster = space.cluster
    with (
        cluster.running_node("claimed") as kubelet,
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        assert held.look() == {}, "nobody gives them out"
        with offering(cluster, kubelet.name):
            until(lambda: not held.look(), held.holders.unheld)
            assert {find_device(found) for found in read_claims(space).values()} == {"gpu-0", "gpu-1"}
            space.create(*claim_any("other"))
            runtime = PodRuntime(held.api, held.settings, held.nodes, held.holders.find_claims)
            with closing(runtime):
                until(lambda: runtime.start(launched("a-1", SLEEPER, image=IMAGE, gpu=GPUS[0])), "a copy runs")
                (copy,) = read_pods(cluster, space.namespace, "gpuwright.io/part=copy")
                claim = read_claims(space)[name_claim(kubelet.name, GPUS[0])]
                assert copy["metadata"]["name"] in list_users(claim)
                assert len(list_users(claim)) == 2
                holder = (list_users(claim) - {copy["metadata"]["name"]}).pop()
                space.kubectl("delete", "pod", holder)

                def is_back() -> bool:
                    users = list_users(read_claims(space)[name_claim(kubelet.name, GPUS[0])])
                    return len(users) == 2 and holder not in users

                until(is_back, "another holder shares the claim")
                assert not held.look(), "the copy kept it meanwhile"
                (other,) = read_pods(cluster, space.namespace, "app=other")
                assert other["status"]["phase"] == "Pending"
                assert "allocation" not in read_claims(space)["other"].get("status", {})
        assert held.look() == {}, "its driver is away, as for an update"
        assert held.holders.find_claims(GPUS[:1]) == [name_claim(kubelet.name, GPUS[0])]
        with closing(GpuHolders(held.api, held.nodes, held.settings)) as again:
            assert not is_held(again, GPUS[:1]), "it does not know yet"
            assert look(again) == {}
            assert again.find_claims(GPUS[:1]) == [name_claim(kubelet.name, GPUS[0])]

    def left() -> set[str]:
        return {name for name, found in read_claims(space).items() if "deletionTimestamp" not in found["metadata"]}

    until(lambda: left() == {"other"}, "claims go with their node, once nobody's pod is there")


def test_a_gpu_that_another_claim_has_is_not_ours(space: Place, tmp_path: Path) -> None:
    cluster = space.cluster
    with (
        cluster.running_node("contested") as kubelet,
        offering(cluster, kubelet.name),
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        space.create(*claim_any("first"))
        space.wait("condition=Ready", "pod/first")

        def is_one_held() -> bool:
            return len(held.look()) == 1

        until(is_one_held, held.holders.unheld)
        until(lambda: "cannot allocate all claims" in next(iter(held.look().values())), held.holders.unheld)
        (gpu,) = held.holders.unheld()
        assert not is_held(held.holders, [gpu]), "no copy starts there"
        assert not is_held(held.holders, GPUS), "nor one on both"
        with closing(PodRuntime(held.api, held.settings, held.nodes, held.holders.find_claims)) as runtime:
            assert runtime.start(launched("a-1", SLEEPER, image=IMAGE, gpu=gpu)) is None
            assert "cannot allocate all claims" in runtime.log_tail("a-1"), "it says what it waits for"
        space.kubectl("delete", "pod/first", "resourceclaim/first")
        until(lambda: not held.look(), held.holders.unheld)


def test_a_copy_on_several_gpus_has_the_claims_of_all_and_goes_on_when_they_are_deleted(
    space: Place, tmp_path: Path
) -> None:
    cluster = space.cluster
    with (
        cluster.running_node("several") as kubelet,
        offering(cluster, kubelet.name),
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        held.look()
        until(lambda: not held.look(), held.holders.unheld)
        runtime = PodRuntime(held.api, held.settings, held.nodes, held.holders.find_claims)
        with closing(runtime):
            started = launched("a-1", SLEEPER, image=IMAGE, gpu=",".join(GPUS))
            until(lambda: runtime.start(started), "a copy runs")
            (copy,) = read_pods(cluster, space.namespace, "gpuwright.io/part=copy")
            before = read_claims(space)
            assert all(copy["metadata"]["name"] in list_users(found) for found in before.values())
            space.kubectl("delete", "resourceclaims", "--all", "--wait=false")

            def is_alone() -> bool:
                held.look()
                return all(list_users(found) == {copy["metadata"]["name"]} for found in read_claims(space).values())

            until(is_alone, "holders leave claims that are deleted")
            assert not is_held(held.holders, GPUS[:1]), "no copy starts there"
            until(lambda: "deleted its claim" in held.look().get(GPUS[0], ""), held.holders.unheld)
            (running,) = runtime.find()
            runtime.end(running, force=True)
        until(lambda: not held.look() and is_held(held.holders, GPUS), held.holders.unheld)
        after = read_claims(space)
        assert {name: found["metadata"]["uid"] for name, found in after.items()}.keys() == before.keys()
        assert all(after[name]["metadata"]["uid"] != found["metadata"]["uid"] for name, found in before.items())


def test_no_copy_starts_on_a_gpu_that_is_not_offered_any_more(space: Place, tmp_path: Path) -> None:
    cluster = space.cluster
    with (
        cluster.running_node("changed") as kubelet,
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        with offering(cluster, kubelet.name):
            until(lambda: not held.look() and is_held(held.holders, GPUS), held.holders.unheld)
        with offering(cluster, kubelet.name, attributes={"uuid": {"string": "GPU-z"}}):
            held.look()
            assert not is_held(held.holders, GPUS[:1])
            assert held.holders.find_claims(GPUS[1:])
            until(lambda: "does not offer it" in held.look().get(GPUS[0], ""), held.holders.unheld)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"allowMultipleAllocations": True}, "gives one GPU of this node to several claims"),
        ({"attributes": {"uuid": {"string": "GPU-z"}}}, "does not offer it"),
        ({"attributes": {"uuid": {"string": "GPU-a"}, "type": {"string": "mig"}}}, "does not offer it"),
    ],
)
def test_what_is_no_whole_gpu_is_refused_by_name(
    space: Place, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    cluster = space.cluster
    with (
        cluster.running_node("refused") as kubelet,
        offering(cluster, kubelet.name, **changed),
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        assert said in held.look()[GPUS[0]]
        assert not is_held(held.holders, GPUS[:1]), "no copy starts there"
        assert name_claim(kubelet.name, GPUS[0]) not in read_claims(space)


def test_a_cluster_that_has_only_older_versions_of_dra_is_refused_by_name(
    space: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_claims, "VERSION", "v9")  # what this server has is older then
    monkeypatch.setattr(gpu_claims, "OLDER", ("v8", "v1"))
    cluster = space.cluster
    with (
        cluster.running_node("older") as kubelet,
        offering(cluster, kubelet.name),
        holding(cluster, space.namespace, kubelet, tmp_path / "account") as held,
    ):
        assert {why.partition(", and")[2] for why in held.look().values()} == {
            " gpuwright claims them from Kubernetes 1.34 on"
        }
