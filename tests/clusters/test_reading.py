"""Objects of a cluster become an estate: GPUs as nodes offer them, pods that hold them, workloads that scale."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from cli.estate.assessment import Assessment, write_data
from cli.estate.manifests import write_manifests
from clusters.amounts import read_amount, read_gib
from clusters.api_server import trim
from clusters.bill import draw_bill
from clusters.estate import ClusterWorkload, Estate, PodSpread, WorkloadName
from clusters.objects import ClusterObjects, objects_of
from clusters.price_list import read_examples
from clusters.promises import find_promises
from clusters.reading import read_estate
from clusters.reading.requests import read_slots
from tests.clusters import demo
from tests.clusters.made_up import (
    Item,
    apart,
    autoscaler,
    budget,
    container,
    deployment,
    heading,
    leader_worker_set,
    node,
    pod,
    pod_spec,
    scaled_object,
)
from tests.support.soak import scaled

L40S = node("n1", 4, "NVIDIA-L40S", "g6e.12xlarge")


def estate_of(*items: Item | Iterable[Item]) -> Estate:
    """The estate of these objects, and of an L40S node unless there is a node among them."""
    found = [item for each in items for item in ([each] if isinstance(each, dict) else each)]
    if not any(item["kind"] == "Node" for item in found):
        found.append(L40S)
    return read_estate(objects_of(found))


def the_workload(estate: Estate) -> ClusterWorkload:
    (found,) = estate.workloads
    return found


def sentences(estate: Estate) -> str:
    return "\n".join(map(str, estate.unknown))


def test_a_pod_of_a_deployment_is_counted_to_it_past_its_replica_set() -> None:
    found = the_workload(estate_of(deployment("shop", "ranker", pod_spec("ranker:1", 2), ["n1", "n1"], replicas=3)))
    assert found.name == WorkloadName("shop", "Deployment", "ranker")
    assert (found.replicas, found.running, found.ready, found.gpus) == (3, 2, 2, Fraction(4))


def test_a_deployment_that_something_else_owns_is_still_what_is_scaled() -> None:
    owner = heading("serving.kserve.io/v1beta1", "InferenceService", "chat", "mistral")
    found = the_workload(estate_of(deployment("chat", "mistral-predictor", pod_spec("v", 1), ["n1"], owner=owner)))
    assert found.name.kind == "Deployment"
    assert found.owners == ("InferenceService mistral",)


def test_a_replica_of_a_leader_worker_set_is_all_pods_of_its_group() -> None:
    groups = [["n1", "n1"], ["n1", ""]]
    found = the_workload(estate_of(leader_worker_set("chat", "llama", pod_spec("vllm:1", 1), groups)))
    assert found.name == WorkloadName("chat", "LeaderWorkerSet", "llama")
    assert (found.replicas, found.running, found.waiting_pods, found.pods_per_replica) == (2, 1, 1, 2)
    assert found.slots_per_replica == {"nvidia.com/gpu": 2}


def test_owners_of_unknown_kinds_are_named_as_they_are() -> None:
    ray = heading("ray.io/v1", "RayCluster", "research", "sweep")
    found = the_workload(estate_of(pod("research", "w0", pod_spec("ray:2", 1), "n1", ray)))
    assert str(found.name) == "research/RayCluster/sweep"
    assert not found.is_scalable
    assert found.replicas is None


def test_an_unknown_kind_that_an_autoscaler_names_is_scaled() -> None:
    graph = heading("nvidia.com/v1alpha1", "DynamoWorker", "chat", "decode")
    items = [
        pod("chat", "d0", pod_spec("dynamo:1", 1), "n1", graph),
        autoscaler("chat", "decode", 1, 4, "DynamoWorker"),
    ]
    found = the_workload(estate_of(items))
    assert found.is_scalable
    assert found.autoscaler is not None
    assert found.autoscaler.most == 4


def test_jobs_of_one_cron_job_are_one_workload_and_finished_pods_hold_nothing() -> None:
    cron = heading("batch/v1", "CronJob", "r", "nightly")
    jobs = [heading("batch/v1", "Job", "r", f"nightly-{at}", cron) for at in range(2)]
    pods = [
        pod("r", f"p{at}", pod_spec("s:1", 1), "n1", job, phase=phase)
        for at, (job, phase) in enumerate(zip(jobs, ("Succeeded", "Running"), strict=True))
    ]
    found = the_workload(estate_of(jobs, pods))
    assert (str(found.name), found.gpus) == ("r/CronJob/nightly", Fraction(1))


def test_a_workload_that_is_scaled_to_nothing_is_still_listed() -> None:
    found = the_workload(estate_of(deployment("chat", "drafts", pod_spec("v", 2), [], replicas=0)))
    assert (found.replicas, found.running, found.gpus) == (0, 0, Fraction(0))
    assert found.slots_per_replica == {"nvidia.com/gpu": 2}


def test_keda_stands_for_the_autoscaler_that_it_makes() -> None:
    items = [*deployment("shop", "embedder", pod_spec("e:1", 1), ["n1"]), *scaled_object("shop", "embedder", 0, 6)]
    found = the_workload(estate_of(items)).autoscaler
    assert found is not None
    assert (found.kind, found.least, found.most) == ("ScaledObject", 0, 6)


def test_rules_that_keep_pods_running_and_apart_are_read() -> None:
    spec = apart(pod_spec("s:1", 1), "speech")
    items = [*deployment("shop", "speech", spec, ["n1"]), budget("shop", "speech", minAvailable="50%")]
    items += [budget("shop", "other", maxUnavailable=1), budget("chat", "speech", maxUnavailable=1)]
    found = the_workload(estate_of(items))
    assert [(each.name, each.min_available) for each in found.budgets] == [("speech", "50%")]
    assert found.spread == (PodSpread("kubernetes.io/hostname", None),)


@pytest.mark.parametrize(
    ("operator", "bound", "barred"),
    [("Gt", "39999", {"n0"}), ("Gt", "46068", {"n0", "n1"}), ("Lt", "46068", {"n1"}), ("Lt", "many", {"n0", "n1"})],
)
def test_node_affinity_compares_numbers_of_labels(operator: str, bound: str, barred: set[str]) -> None:
    rule = {"key": "nvidia.com/gpu.memory", "operator": operator, "values": [bound]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    items = [node("n0", 4, "NVIDIA-L4", "small", memory_mib=23034), node("n1", 4, "NVIDIA-L40S", "big")]
    items += deployment("shop", "ranker", {**pod_spec("r:1", 1), "affinity": affinity}, ["n1"])
    assert the_workload(estate_of(items)).barred_nodes == barred


def test_without_the_list_of_replica_sets_a_deployment_is_found_by_its_pods_names() -> None:
    items = [L40S, *deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"])]
    lists = {kind: found for kind, found in objects_of(items).lists.items() if kind in ("Node", "Pod")}
    estate = read_estate(ClusterObjects(lists))
    assert str(the_workload(estate).name) == "shop/Deployment/ranker"
    assert "workload shop/Deployment/ranker: its object could not be read" in sentences(estate)


def test_gpus_that_pods_share_are_held_in_parts() -> None:
    shared = node("n1", 4, "Tesla-T4", "g4dn.12xlarge", replicas=10, sharing="mps")
    estate = estate_of(shared, deployment("vision", "ocr", pod_spec("triton:1", 1), ["n1"] * 6))
    (found,) = estate.nodes
    assert (found.gpus, found.product, found.offers[0].sharing, found.offers[0].slots) == (4, "Tesla-T4", "mps", 40)
    assert the_workload(estate).gpus == Fraction(6, 10)


@pytest.mark.parametrize(
    ("product", "slices", "gpus"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 14, 2),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 16, 8),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.10gb", 32, 8),  # memory allows four, compute would allow seven
        ("NVIDIA-H100-80GB-HBM3-MIG-2g.20gb", 24, 8),
    ],
)
def test_slices_of_one_size_are_counted_back_to_gpus(product: str, slices: int, gpus: int) -> None:
    sliced = node("n1", slices, product, "p4d.24xlarge", labels={"nvidia.com/mig.strategy": "single"})
    (found,) = estate_of(sliced).nodes
    assert found.gpus == gpus
    assert found.product + "-MIG-" + product.rpartition("-MIG-")[2] == product
    assert found.offers[0].gpus_per_slot == Fraction(gpus, slices)


def test_slices_of_several_sizes_are_parts_of_seven() -> None:
    resources = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 1}
    mixed = node("n1", 2, "NVIDIA-A100-SXM4-40GB", "own", resources=resources)
    spec = pod_spec("m:1", 1, "nvidia.com/mig-3g.20gb")
    estate = estate_of(mixed, deployment("lab", "m", spec, ["n1"]))
    assert estate.nodes[0].gpus == 2
    assert the_workload(estate).gpus == Fraction(3, 7)


@pytest.mark.parametrize(("resource", "suffix"), [("nvidia.com/gpu", "-SHARED"), ("nvidia.com/gpu.shared", "")])
def test_slices_of_one_size_that_pods_share_are_parts_of_slices(resource: str, suffix: str) -> None:
    labels = {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.replicas": "4"}
    product = f"NVIDIA-A100-SXM4-40GB-MIG-1g.5gb{suffix}"
    sliced = node("n1", 14, product, "own", labels=labels, resources={resource: 56})
    estate = estate_of(sliced, deployment("lab", "m", pod_spec("m:1", 1, resource), ["n1"] * 28))
    (found,) = estate.nodes
    assert (found.gpus, found.product, found.offers[0].sharing) == (2, "NVIDIA-A100-SXM4-40GB", "timeSlicing")
    assert the_workload(estate).gpus == 1
    assert not estate.unknown


def test_slices_of_several_sizes_that_pods_share_are_parts_of_slices() -> None:
    labels = {"nvidia.com/mig-1g.5gb.replicas": "4"}
    resources = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb.shared": 16, "nvidia.com/mig-3g.20gb": 1}
    mixed = node("n1", 2, "NVIDIA-A100-SXM4-40GB", "own", labels=labels, resources=resources)
    spec = pod_spec("m:1", 1, "nvidia.com/mig-1g.5gb.shared")
    estate = estate_of(mixed, deployment("lab", "m", spec, ["n1"] * 16))
    assert the_workload(estate).gpus == Fraction(4, 7)
    assert not estate.unknown


def test_without_labels_gpus_are_what_the_kubelet_offers_and_the_type_is_said_to_be_unknown() -> None:
    bare = node("n1", 8, "", "")
    bare["metadata"]["labels"] = {}
    bare["spec"] = {}
    estate = estate_of(bare)
    (found,) = estate.nodes
    assert (found.gpus, found.product, found.purchase) == (8, "", "")
    assert "node n1: its GPU type is unknown; run GPU feature discovery" in sentences(estate)


def test_gpus_that_a_device_plugin_does_not_offer_are_still_there_and_named() -> None:
    estate = estate_of(
        node("n1", 8, "NVIDIA-L40S", "own", resources={"nvidia.com/gpu": 7}), node("n2", 2, "x", "y", resources={})
    )
    assert [found.gpus for found in estate.nodes] == [8, 2]
    assert "node n1: its labels count 8 GPUs, and its kubelet offers 7" in sentences(estate)
    assert "node n2: its labels count 2 GPUs, and its kubelet offers none to pods" in sentences(estate)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_gpus_of_a_dra_driver_are_read_from_slices_and_claims(version: str) -> None:
    plain = node("n1", 0, "", "own", resources={})
    plain["metadata"]["labels"] = {"eks.amazonaws.com/capacityType": "ON_DEMAND"}
    facts: dict[str, Any] = {
        "attributes": {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}},
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    devices = [{"name": f"gpu-{at}", **(facts if version == "v1" else {"basic": facts})} for at in range(4)]
    published = heading(f"resource.k8s.io/{version}", "ResourceSlice", "", "n1-gpus")
    published["spec"] = {
        "driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 2}, "devices": devices,
    }  # fmt: skip
    old = heading(f"resource.k8s.io/{version}", "ResourceSlice", "", "n1-old")
    old["spec"] = {**published["spec"], "pool": {"name": "n1", "generation": 1}}
    pods = [pod("lab", f"p{at}", {**pod_spec("v:1", 0), "resourceClaims": [{"name": "gpu"}]}, "n1") for at in range(2)]
    claim = heading(f"resource.k8s.io/{version}", "ResourceClaim", "lab", "shared")
    results = [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-2", "request": "gpu"}]
    claim["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "uid": each["metadata"]["uid"]} for each in pods],
    }
    estate = estate_of(plain, published, old, pods, claim)
    (found,) = estate.nodes
    assert (found.gpus, found.product) == (4, "NVIDIA-H100-80GB-HBM3")
    assert [(each.gpus, each.devices) for each in estate.pods] == [(Fraction(1, 2), ("gpu-2",))] * 2


def test_claims_that_could_not_be_read_are_said_for_the_pods_that_have_some() -> None:
    claimed = pod("lab", "p0", {**pod_spec("v:1", 0), "resourceClaims": [{"name": "gpu"}]}, "n1")
    lists = {kind: found for kind, found in objects_of([L40S, claimed]).lists.items() if kind != "ResourceClaim"}
    assert "pod lab/p0: it holds devices by claims that could not be read" in sentences(
        read_estate(ClusterObjects(lists))
    )


def test_a_pod_takes_what_its_containers_take_together_or_an_init_container_alone() -> None:
    sidecar = {**container("proxy:1", 1), "restartPolicy": "Always"}
    spec = {
        "containers": [container("a:1", 1), container("b:1", 1)],
        "initContainers": [sidecar, container("warm:1", 4)],
    }
    assert read_slots(spec) == {"nvidia.com/gpu": 5}
    assert read_slots({**spec, "initContainers": [container("warm:1", 1), sidecar]}) == {"nvidia.com/gpu": 3}


def test_more_held_than_there_is_is_said() -> None:
    estate = estate_of(deployment("shop", "ranker", pod_spec("r:1", 3), ["n1", "n1"]))
    assert "node n1: its pods hold 6 GPUs of 4" in sentences(estate)


def test_a_pod_on_a_node_that_was_not_read_holds_nothing_and_is_named() -> None:
    estate = estate_of(deployment("shop", "ranker", pod_spec("r:1", 1), ["elsewhere"]))
    assert the_workload(estate).gpus == 0
    assert "it holds GPUs of node elsewhere, which was not read" in sentences(estate)


def test_what_is_no_gpu_of_nvidia_is_named_and_in_no_sum() -> None:
    others = node("n2", 0, "", "other", resources={"amd.com/gpu": 8, "cpu": 8})
    estate = estate_of(L40S, others)
    assert [each.name for each in estate.nodes] == ["n1"]
    assert "node n2: what it has of amd.com/gpu is not assessed and in no sum" in sentences(estate)


def test_other_devices_of_nvidia_are_no_gpus_and_are_named() -> None:
    cards = {"nvidia.com/hostdev": 8, "nvidia.com/gpumem": 80}
    with_gpus = node("n1", 8, "NVIDIA-L40S", "big", resources={"nvidia.com/gpu": 8, **cards})
    without = node("n2", 0, "", "other", resources=cards)
    spec = pod_spec("nccl:1", 4)
    spec["containers"][0]["resources"]["limits"]["nvidia.com/hostdev"] = "4"
    estate = estate_of(with_gpus, without, deployment("shop", "ranker", spec, ["n1"]))
    assert [(each.name, each.gpus) for each in estate.nodes] == [("n1", 8)]
    found = the_workload(estate)
    assert (found.gpus, found.slots_per_replica) == (Fraction(4), {"nvidia.com/gpu": 4})
    for name in ("n1", "n2"):
        assert f"node {name}: what it has of nvidia.com/gpumem, nvidia.com/hostdev is not assessed" in sentences(estate)


@pytest.mark.parametrize("resource", ["gpu", "gpu.shared", "pgpu", "mig-1g.10gb"])
def test_gpus_have_the_names_of_nvidias_device_plugins(resource: str) -> None:
    assert read_slots(pod_spec("v:1", 2, f"nvidia.com/{resource}")) == {f"nvidia.com/{resource}": 2}


def test_numbers_beyond_every_machine_are_none() -> None:
    assert read_amount(10**400) is None
    assert read_gib(-(10**400)) is None
    many: Any = {"limits": {"nvidia.com/gpu": "1e15"}}
    assert read_slots({"containers": [{"resources": many}]}) == {}
    item = node("n2", 10**400, "NVIDIA-A100-" + "9" * 400 + "GB-MIG-1g." + "9" * 5000 + "gb", "own")
    item["status"]["allocatable"] |= {"cpu": 10**400, "memory": 10**400}
    [found] = estate_of(L40S, item).nodes
    assert found.name == "n1"


def test_a_profile_that_begins_with_another_digit_is_none() -> None:
    devices = [{"name": "gpu-0", "attributes": {"profile": {"string": "\u00b2g.10gb"}}}]
    slices = heading("resource.k8s.io/v1", "ResourceSlice", "", "s")
    slices["spec"] = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}
    assert [each.name for each in estate_of(L40S, slices).nodes] == ["n1"]


def test_what_is_no_entry_of_managed_fields_is_left_out() -> None:
    item, *_ = deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"], annotations={"gpuwright.io/service": "ranker"})
    item["metadata"]["managedFields"] = ["x", None, {"manager": "kubectl"}]
    kept = trim("Deployment", item)
    assert kept is not None
    assert kept["metadata"]["managedFields"] == [{"manager": "kubectl", "fieldsV1": {}}]


@pytest.mark.parametrize(
    ("spec", "surge_below"),
    [({"canary": {"maxSurge": 0}}, 0), ({"canary": {}}, 4), ({"blueGreen": {}}, 10**9)],
)
def test_a_rollout_of_argo_is_scaled_as_a_deployment(spec: dict[str, Any], surge_below: int) -> None:
    items = list(deployment("shop", "ranker", pod_spec("r:1", 1), ["n1", "n1"]))
    items[0] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    items[0]["spec"]["strategy"] = spec
    for item in items[1:]:
        for owner in item["metadata"]["ownerReferences"]:
            owner["kind"] = owner["kind"].replace("Deployment", "Rollout")
    workload = the_workload(estate_of(items))
    assert (str(workload.name), workload.is_scalable, workload.replicas) == ("shop/Rollout/ranker", True, 2)
    assert workload.surge_below == surge_below


def test_an_object_that_is_given_twice_counts_once() -> None:
    ranker = list(deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"]))
    estate = estate_of(L40S, L40S, ranker, ranker)
    assert (len(estate.nodes), the_workload(estate).gpus) == (1, Fraction(1))


@pytest.mark.slow
def test_objects_of_a_wrong_shape_are_read_as_far_as_they_go() -> None:
    for seed in range(scaled(3000, 60, 10)):
        random = Random(seed)
        items = deepcopy(random.sample(list(demo.items()), 30))
        for _ in range(random.randint(1, 10)):
            spoil(random.choice(items), random)
        for item in items:
            trim(item["kind"], item)
        estate = read_estate(objects_of(items))
        bill = draw_bill(estate, read_examples(), None)
        found = Assessment(estate, bill)
        json.dumps(write_data(found))
        write_manifests(found, find_promises(estate))
        assert bill.nano_per_hour == sum(price.nano_per_hour or 0 for price in bill.nodes), seed


def spoil(item: Item, random: Random) -> None:
    """Puts something else in the place of one part of the object, but its kind."""
    place: Any = item
    while True:
        key = random.choice([key for key in (place if isinstance(place, dict) else range(len(place))) if key != "kind"])
        if not place[key] or not isinstance(place[key], dict | list) or random.random() < 0.2:
            place[key] = deepcopy(random.choice(JUNK))
            return
        place = place[key]


JUNK = [None, 3, -1, "x", [], {}, [None], True, {"a": 1}, "1e999", "9" * 30, "99Gi", 1e308]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("200m", Fraction(1, 5)),
        ("16Gi", 16 * 2**30),
        ("1e3", 1000),
        ("1.5k", 1500),
        (8, 8),
        ("2E", 2 * 10**18),
        ("x", None),
    ],
)
def test_amounts_are_read_exactly(text: object, amount: Fraction | None) -> None:
    assert read_amount(text) == amount


def test_memory_is_read_in_gib() -> None:
    assert read_gib("393216Mi") == 384
