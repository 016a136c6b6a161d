"""Who holds what a service that is short could run on."""

from __future__ import annotations

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import DeclaredObject
from app.control.formulate.rivals import find_rivals
from app.manifests.model import Fields

SHORT = "lab/short"


def declare(kind: str, name: str, spec: Fields, tenant: str = "") -> DeclaredObject:
    return DeclaredObject(kind, tenant, name, spec)


def world(*more: DeclaredObject, types: list[str] | None = None) -> tuple[DeclaredObject, ...]:
    service: Fields = {"model": "m"} | ({"gpuTypes": types} if types else {})
    return (
        declare("GpuType", "a100", {"pricePerHour": 3.0}), declare("GpuType", "t4", {"pricePerHour": 0.5}),
        declare("Node", "n-a", {"gpuType": "a100", "gpus": 2}), declare("Node", "n-t", {"gpuType": "t4", "gpus": 2}),
        declare("Profile", "m-a", {"model": "m", "gpuType": "a100"}),
        declare("Profile", "m-t", {"model": "m", "gpuType": "t4"}),
        declare("Profile", "o-t", {"model": "o", "gpuType": "t4"}),
        declare("Service", "short", service, "lab"),
        declare("Service", "other", {"model": "o"}, "shop"),
        *more,
    )  # fmt: skip


IN_FORCE = {
    "n-a": NodeDesired((AssignedInstance("i-1", 0, "lab", "short", model="m", sm_percent=100),)),
    "n-t": NodeDesired((AssignedInstance("i-2", 0, "shop", "other", model="o", sm_percent=50),)),
}


def test_who_holds_a_gpu_that_it_could_run_on_is_a_rival_and_it_is_its_own() -> None:
    assert find_rivals(world(), IN_FORCE, {SHORT}) == {"lab/short", "shop/other"}


def test_who_holds_gpus_alone_that_it_does_not_admit_is_none() -> None:
    assert find_rivals(world(types=["a100"]), IN_FORCE, {SHORT}) == {"lab/short"}
    assert find_rivals(world(types=["t4"]), IN_FORCE, {SHORT}) == {"shop/other"}
    assert find_rivals(world(types=["h100"]), IN_FORCE, {SHORT}) == frozenset()


def test_what_its_tenants_limit_or_budget_keeps_small_has_no_rivals() -> None:
    for spec in (
        {"limit": {"gpus": 1}},
        {"limit": {"pricePerHour": 3}},
        {"budget": {"perMonth": 9}, "overBudget": "freeze"},
    ):
        assert find_rivals(world(declare("Tenant", "lab", spec)), IN_FORCE, {SHORT}) == frozenset()
    for spec in ({"limit": {"gpus": 4}}, {"guarantee": {"gpus": 1}}, {"budget": {"perMonth": 9}}):
        assert find_rivals(world(declare("Tenant", "lab", spec)), IN_FORCE, {SHORT}), spec
