"""Who holds what a service that is short of GPUs could run on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import DeclaredObject, NodeStatus
from app.control.formulate.rivals import find_rivals
from app.control.jobs.room import UnusedGpu, free_capacity, most_linked
from app.manifests.model import Fields

SHORT, OTHER = "lab/short", "shop/other"


def declare(kind: str, name: str, spec: Fields, tenant: str = "") -> DeclaredObject:
    return DeclaredObject(kind, tenant, name, spec)


def profile(name: str, model: str, kind: str) -> DeclaredObject:
    latency = {"1": {"10": 60.0, "50": 20.0, "100": 10.0}}
    spec = {"model": model, "variant": "v", "gpuType": kind, "latencyMs": latency, "memoryGib": {"1": 2.0}}
    return declare("Profile", name, spec)


def node(name: str, kind: str, **more: Any) -> DeclaredObject:
    return declare("Node", name, {"gpuType": kind, "gpus": 1, "cpuCores": 8, "memoryGib": 64} | more)


def world(*more: DeclaredObject, fleet_mode: str = "auto", **short: Any) -> tuple[DeclaredObject, ...]:
    slo, variants = {"latencyMs": 80, "percentile": 98}, {"variants": [{"name": "v", "accuracy": 0.9}]}
    return (
        declare("Policy", "fleet", {"mode": fleet_mode}),
        declare("GpuType", "a100", {"pricePerHour": 3.0, "memoryGib": 40}),
        declare("GpuType", "t4", {"pricePerHour": 0.5, "memoryGib": 16}),
        node("n-a", "a100"), node("n-t", "t4"),
        declare("Model", "m", variants), declare("Model", "o", variants),
        profile("m-a", "m", "a100"), profile("m-t", "m", "t4"), profile("o-t", "o", "t4"),
        declare("Service", "short", {"model": "m", "slo": slo} | short, "lab"),
        declare("Service", "other", {"model": "o", "slo": slo}, "shop"),
        *more,
    )  # fmt: skip


def in_force(other_percent: float = 80.0, other_gib: float = 4.0) -> dict[str, NodeDesired]:
    short = AssignedInstance("i-1", 0, "lab", "short", model="m", sm_percent=90, memory_gib=2.0)
    other = AssignedInstance(
        "i-2", 0, "shop", "other", model="o", sm_percent=other_percent, memory_gib=other_gib
    )  # fmt: skip
    return {"n-a": NodeDesired((short,)), "n-t": NodeDesired((other,))}


@dataclass(frozen=True)
class Fleet:
    declared: tuple[DeclaredObject, ...]
    in_force: Desired = field(default_factory=in_force)
    nodes: dict[str, NodeStatus] = field(
        default_factory=lambda: {name: NodeStatus(name, "reporting") for name in ("n-a", "n-t")}
    )


def rivals(declared: tuple[DeclaredObject, ...], is_held: bool = False, **more: Any) -> frozenset[str]:
    return find_rivals(Fleet(declared, **more), is_held, [SHORT])


def test_who_holds_a_gpu_that_it_could_run_on_is_a_rival_and_it_is_its_own() -> None:
    assert rivals(world()) == {SHORT, OTHER}


def test_who_holds_gpus_alone_that_it_does_not_admit_is_none() -> None:
    assert rivals(world(gpuTypes=["a100"])) == {SHORT}
    assert rivals(world(gpuTypes=["t4"])) == {OTHER}
    assert rivals(world(gpuTypes=["h100"])) == frozenset()


def test_what_its_tenants_limit_or_budget_keeps_small_has_no_rivals() -> None:
    limits: list[Fields] = [
        {"limit": {"gpus": 0.9}},
        {"limit": {"pricePerHour": 2.7}},
        {"budget": {"perMonth": 9}, "overBudget": "freeze"},
    ]
    for spec in limits:
        assert rivals(world(declare("Tenant", "lab", spec))) == frozenset()
    others: list[Fields] = [{"limit": {"gpus": 4}}, {"guarantee": {"gpus": 1}}, {"budget": {"perMonth": 9}}]
    for spec in others:
        assert rivals(world(declare("Tenant", "lab", spec))), spec


def test_where_a_gpu_that_it_could_run_on_has_room_gpus_are_not_short() -> None:
    assert rivals(world(), in_force=in_force(other_percent=50)) == frozenset()
    assert rivals(world(gpuTypes=["a100"]), in_force=in_force(other_percent=50)) == {SHORT}, "there it may not run"
    assert rivals(world(), in_force=in_force(50, other_gib=15)) == {SHORT, OTHER}, "there is no memory left"
    assert rivals(world(isolation="dedicated"), in_force=in_force(50)) == {SHORT, OTHER}, "it wants a whole GPU"
    both = NodeDesired((*in_force()["n-a"].instances, AssignedInstance("i-3", 0, "shop", "b", model="b")))
    assert rivals(world(), in_force=in_force() | {"n-a": both}), "a second copy of a model may not share a GPU"


def test_a_free_gpu_that_may_not_be_used_is_no_room() -> None:
    empty = in_force() | {"n-t": NodeDesired()}
    assert rivals(world(), in_force=empty) == frozenset()
    reporting = NodeStatus("n-a", "reporting")
    for facts in (NodeStatus("n-t", "lost"), NodeStatus("n-t", "reporting", cordoned_gpus=(0,))):
        assert rivals(world(), in_force=empty, nodes={"n-a": reporting, "n-t": facts}) == {SHORT}


EMPTY_NODES: list[tuple[Fields, Fields, NodeStatus]] = [
    ({"purchase": "spot"}, {"availability": {"maxSpotShare": 0}}, NodeStatus("n-x", "reporting")),
    ({"purchase": "spot"}, {"availability": {"maxSpotShare": 0.5}}, NodeStatus("n-x", "reporting")),
    ({"templates": ["vllm"]}, {}, NodeStatus("n-x", "reporting")),
    ({}, {}, NodeStatus("n-x", "reporting", templates=("vllm",))),
    ({"cpuCores": 1}, {}, NodeStatus("n-x", "reporting")),
    ({"memoryGib": 1}, {}, NodeStatus("n-x", "reporting")),
]


@pytest.mark.parametrize(("spec", "short", "facts"), EMPTY_NODES)
def test_an_empty_gpu_of_a_node_that_it_may_not_use_is_no_room(spec: Fields, short: Fields, facts: NodeStatus) -> None:
    variant = {"name": "v", "accuracy": 0.9, "runtime": {"template": "triton"}}
    more: dict[str, Fields] = {
        "Model": {"variants": [variant]},
        "Profile": {"cpuCores": 2.0, "hostMemoryGib": 2.0},
    }
    nodes = {name: NodeStatus(name, "reporting") for name in ("n-a", "n-t")} | {"n-x": facts}

    def seen(spec: Fields, facts: NodeStatus) -> frozenset[str]:
        declared = [
            replace(item, spec={**item.spec, **more[item.kind]}) if item.name in ("m", "m-a", "m-t") else item
            for item in world(node("n-x", "t4", **spec), **short)
        ]
        return rivals(tuple(declared), nodes=nodes | {"n-x": facts})

    assert seen({}, NodeStatus("n-x", "reporting")) == frozenset(), "on another node it is room"
    assert seen(spec, facts) == {SHORT, OTHER}


@pytest.mark.parametrize("line", [{"service": "other", "variant": "v"}, {"job": "train"}])
def test_cores_that_others_use_are_no_room(line: dict[str, Any]) -> None:
    job = declare("Job", "train", {"profiles": {"t4": {"cpuCores": 7.0}}}, "shop")
    held = AssignedInstance("i-2", 0, "shop", model="o", sm_percent=50, memory_gib=4.0, **line)
    for cores, found in ((1.0, frozenset()), (2.0, {SHORT, OTHER} if "service" in line else {SHORT})):
        declared = tuple(
            replace(item, spec={**item.spec, "cpuCores": {"m-t": cores, "o-t": 7.0}[item.name]})
            if item.name in ("m-t", "o-t")
            else item
            for item in world(job)
        )
        assert rivals(declared, in_force=in_force() | {"n-t": NodeDesired((held,))}) == found


def test_who_holds_gpus_that_its_rules_leave_out_is_no_rival() -> None:
    declared = tuple(node("n-t", "t4", purchase="spot") if item.name == "n-t" else item for item in world())
    assert rivals(declared) == {SHORT, OTHER}
    firm = tuple(
        replace(item, spec={**item.spec, "availability": {"maxSpotShare": 0}}) if item.name == "short" else item
        for item in declared
    )
    assert rivals(firm) == {SHORT}


def test_gpus_that_are_free_and_not_linked_are_no_room_for_an_instance_on_several() -> None:
    gpus = [UnusedGpu("n-t", 100, 16.0, link=link) for link in (0, 0, 1, 1, 1)]
    assert most_linked(gpus) == 3
    found = free_capacity(
        Fleet(world(node("n-x", "t4", gpus=4, nvlinkGroup=2)), nodes={"n-x": NodeStatus("n-x", "reporting")})
    )
    assert [gpu.link for gpu in found["t4"]] == [0, 0, 1, 1]
    assert most_linked(found["t4"]) == 2


def test_what_could_not_meet_its_slo_on_any_gpu_is_not_short_of_gpus() -> None:
    assert rivals(world(slo={"latencyMs": 9, "percentile": 98})) == frozenset()


@pytest.mark.parametrize("mode", ["approve", "advisory"])
def test_what_waits_for_a_person_is_not_short_of_gpus(mode: str) -> None:
    assert rivals(world(mode=mode)) == frozenset()
    assert rivals(world(fleet_mode=mode)) == frozenset()
    assert rivals(world(), is_held=True) == frozenset()


def test_no_service_of_a_higher_priority_gives_way() -> None:
    assert rivals(world(priority=10)) == {SHORT}
    assert rivals(world(priority=1000)) == {SHORT, OTHER}
