"""Who holds what a service that is short of GPUs could run on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import DeclaredObject, NodeStatus
from app.control.formulate.rivals import find_rivals
from app.manifests.model import Fields

SHORT, OTHER = "lab/short", "shop/other"


def declare(kind: str, name: str, spec: Fields, tenant: str = "") -> DeclaredObject:
    return DeclaredObject(kind, tenant, name, spec)


def profile(name: str, model: str, kind: str) -> DeclaredObject:
    latency = {"1": {"10": 60.0, "50": 20.0, "100": 10.0}}
    spec = {"model": model, "variant": "v", "gpuType": kind, "latencyMs": latency, "memoryGib": {"1": 2.0}}
    return declare("Profile", name, spec)


def world(*more: DeclaredObject, fleet_mode: str = "auto", **short: Any) -> tuple[DeclaredObject, ...]:
    slo, variants = {"latencyMs": 80, "percentile": 98}, {"variants": [{"name": "v", "accuracy": 0.9}]}
    return (
        declare("Policy", "fleet", {"mode": fleet_mode}),
        declare("GpuType", "a100", {"pricePerHour": 3.0, "memoryGib": 40}),
        declare("GpuType", "t4", {"pricePerHour": 0.5, "memoryGib": 16}),
        declare("Node", "n-a", {"gpuType": "a100", "gpus": 1}), declare("Node", "n-t", {"gpuType": "t4", "gpus": 1}),
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
