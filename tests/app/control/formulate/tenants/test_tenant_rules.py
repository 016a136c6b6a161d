"""A problem under the rules of its tenants, planned cycle after cycle."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import DeclaredObject, Snapshot, TenantSpending
from app.control.formulate.tenants import TenantTerms, apply_tenant_rules, sum_use_by_service, sum_use_by_tenant
from app.control.formulate.tenants.budget import budget_accounts
from solvers.planning.problem import (
    GpuType,
    Limit,
    Node,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from solvers.planning.solve import SolveBudget, solve

NOON = datetime(2026, 3, 11, 12, tzinfo=UTC)
LATENCY = {1: ((10, 20.0), (50, 6.0), (100, 4.0)), 8: ((10, 80.0), (50, 20.0), (100, 12.0))}


def service(name: str, rate: float, **fields: Any) -> Service:
    tenant = name.split("/")[0]
    return replace(Service(name, tenant, "m", ("large", "small"), 200.0, 98.0, rate), **fields)


def problem(*services: Service, gpus: int = 8) -> Problem:
    cheap = {batch: tuple((sm, ms / 3) for sm, ms in curve) for batch, curve in LATENCY.items()}
    profiles = [
        Profile("m", "large", "big", LATENCY, {1: 1.0, 8: 2.0}),
        Profile("m", "small", "big", cheap, {1: 1.0, 8: 2.0}),
    ]
    return Problem(
        gpu_types={"big": GpuType("big", 16.0, 40.0, 300.0, (1500.0,))},
        nodes={f"n{i}": Node(f"n{i}", "big", (0,), 32, 64, 2.0) for i in range(gpus)},
        models={"m": (Variant("large", 0.8), Variant("small", 0.7))},
        profiles={profile.key: profile for profile in profiles},
        services={service.name: service for service in services},
        state=RunningState(now=NOON),
    )


def snapshot(tenants: dict[str, dict[str, Any]], spent: dict[str, float] | None = None, **fields: Any) -> Snapshot:
    declared = (
        *(DeclaredObject("Tenant", "", name, spec) for name, spec in tenants.items()),
        DeclaredObject("GpuType", "", "big", {"pricePerHour": 2.0}),
        *(DeclaredObject("Node", "", f"n{i}", {"gpuType": "big"}) for i in range(8)),
    )
    facts = {tenant: TenantSpending(amount) for tenant, amount in (spent or {}).items()}
    return Snapshot(at=NOON, epoch=1, declared=declared, tenants=facts, **fields)


def held(service: str, sm_percent: float, rate: float = 10.0) -> AssignedInstance:
    tenant, name = service.split("/")
    return AssignedInstance(
        f"{name}-1", 0, tenant=tenant, service=name, sm_percent=sm_percent, rate_per_second=rate, variant="large"
    )


@pytest.mark.slow
def test_a_borrower_gives_back_within_ten_cycles_and_then_nothing_moves() -> None:
    lab, shop = service("lab/a", 9000.0, variants=("large",)), service("shop/a", 6000.0, variants=("large",))
    world = snapshot({"shop": {"guarantee": {"gpus": 4}}, "lab": {"guarantee": {"gpus": 1}}})
    alone = problem(lab, replace(shop, rate_per_second=1.0))
    state = RunningState(NOON, solve(apply_tenant_rules(alone, world), SolveBudget(work=2)).instances)
    both = problem(lab, shop)
    before = sum_use_by_tenant(both, sum_use_by_service(both, state.running))
    assert before["lab"].gpus > 5, "it borrows while the other is idle"
    plans = []
    for _ in range(10):
        rules = apply_tenant_rules(replace(both, state=state), world)
        plans.append(solve(rules, SolveBudget(work=2)))
        state = RunningState(NOON, plans[-1].instances)
    after = sum_use_by_tenant(both, sum_use_by_service(both, plans[-1].instances))
    assert after["shop"].gpus >= 4
    assert after["lab"].gpus >= 1
    changes = plans[-1].changes
    assert (changes.start, changes.stop, changes.move, changes.resize) == (0, 0, 0, 0)


def test_a_frozen_tenant_gets_nothing_more_than_it_has_also_when_its_node_is_lost() -> None:
    tenants = {"shop": {"budget": {"perMonth": 100}, "overBudget": "freeze"}}
    in_force = {"gone": NodeDesired((held("shop/a", 50.0),)), "n0": NodeDesired((held("shop/a", 30.0),))}
    world = snapshot(tenants, {"shop": 100.0}, in_force=in_force)
    rules = apply_tenant_rules(problem(service("shop/a", 5000.0)), world)
    limit = rules.limits["shop"]
    assert limit.gpus == pytest.approx(0.8)
    assert limit.source == "budget"
    assert apply_tenant_rules(problem(service("shop/a", 5000.0)), snapshot(tenants, {"shop": 99.0})).limits == {}


def test_what_is_pinned_counts_against_a_limit() -> None:
    world = snapshot({"shop": {"limit": {"gpus": 2, "pricePerHour": 3}}})
    rules = apply_tenant_rules(problem(service("shop/a", 10.0)), world, [("n0", held("shop/b", 50.0))])
    assert rules.limits == {"shop": Limit(1.5, 2.0)}


def test_a_degraded_tenant_runs_the_variant_that_takes_least_and_weighs_less() -> None:
    world = snapshot({"shop": {"budget": {"perMonth": 100}, "overBudget": "degrade"}}, {"shop": 100.5})
    rules = apply_tenant_rules(problem(service("shop/a", 10.0), service("lab/a", 10.0)), world)
    assert rules.services["shop/a"].variants == ("small",)
    assert rules.services["shop/a"].priority == 10
    assert rules.services["lab/a"] == service("lab/a", 10.0)


def test_an_alarm_alone_changes_no_plan() -> None:
    question = problem(service("shop/a", 10.0))
    rules = apply_tenant_rules(question, snapshot({"shop": {"budget": {"perMonth": 100}}}, {"shop": 500.0}))
    assert rules == question


def test_a_budget_that_will_not_last_the_month_is_near() -> None:
    terms = {"shop": TenantTerms(budget_per_month=100.0)}
    day = NOON.replace(day=16)
    assert budget_accounts(terms, {"shop": 91.0}, day)["shop"].is_near
    assert not budget_accounts(terms, {"shop": 91.0}, NOON.replace(day=31))["shop"].is_near
    assert not budget_accounts(terms, {"shop": 60.0}, day)["shop"].is_near
