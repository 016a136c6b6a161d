"""An objective becomes prices of one account, and carbon enters the energy price of its hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.objective import price_policy
from solvers.planning.judge import judge
from solvers.planning.judge.measures import measure
from solvers.planning.problem import Policy
from solvers.planning.solve import SolveBudget, solve
from tests.app.control.answer.whatif.worlds import snapshot

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
CARBON = {"pricePerTonne": 100, "intensity": "time,gramsPerKwh\n2026-11-23T00:00:00Z,500\n2026-11-23T13:00:00Z,50\n"}


def prices(spec: dict[str, object], now: datetime | None = NOON) -> tuple[float, float]:
    found = price_policy(Policy(energy_price_per_kwh=0.2), spec, now)
    return found.money_weight, found.energy_price_per_kwh


def test_without_an_objective_every_digit_is_as_it_was() -> None:
    assert price_policy(Policy(energy_price_per_kwh=0.1), {}, NOON) == Policy(energy_price_per_kwh=0.1)
    assert prices({"objective": "money"}) == (1.0, 0.2)


def test_weights_and_the_hour_make_the_price_of_a_kilowatt_hour() -> None:
    assert prices({"objective": "energy"}) == pytest.approx((1e-6, 1.0 + 0.2e-6))
    assert prices({"carbon": CARBON}) == pytest.approx((1.0, 0.2 + 0.05))
    assert prices({"carbon": CARBON}, NOON + timedelta(hours=1)) == pytest.approx((1.0, 0.2 + 0.005))
    weights = {"money": 2, "energyKwh": 0.3, "carbonKg": 0.4}
    assert prices({"carbon": CARBON, "objective": weights}) == pytest.approx((2.0, 2 * 0.25 + 0.3 + 0.4 * 0.5))


def asking(world: Snapshot, **spec: object) -> Snapshot:
    def changed(item: DeclaredObject) -> DeclaredObject:
        return replace(item, spec={**item.spec, **spec}) if item.kind == "Policy" else item

    return replace(world, declared=tuple(changed(item) for item in world.declared))


def test_the_question_of_the_next_hour_has_its_carbon() -> None:
    world = replace(asking(snapshot(search=100.0), carbon=CARBON), at=NOON)
    now, soon, later = (
        formulate(replace(world, at=NOON + timedelta(minutes=minutes))).problem.policy.energy_price_per_kwh
        for minutes in (0, 59, 60)
    )
    assert now == soon == pytest.approx(0.05)
    assert later == pytest.approx(0.005)


@pytest.mark.slow
def test_a_plan_for_energy_draws_less_than_one_for_money() -> None:
    """The T4s are cheap, and draw more than a V100 even when they are idle."""
    world = snapshot(search=10.0)
    declared = tuple(
        replace(item, spec={**item.spec, "idleW": 60}) if item.name == "t4" else item for item in world.declared
    )
    world = replace(world, declared=declared)
    problems = [formulate(asking(world, objective=goal)).problem for goal in ("money", "energy")]
    plans = [solve(problem, SolveBudget(None, 10)) for problem in problems]
    money, energy = (measure(problem, plan) for problem, plan in zip(problems, plans, strict=True))
    assert money.gpus_per_hour < energy.gpus_per_hour
    assert energy.energy_kwh < money.energy_kwh
    for problem, plan, found in zip(problems, plans, (money, energy), strict=True):
        policy, cost = problem.policy, judge(problem, plan).cost.total
        assert cost == pytest.approx(
            policy.money_weight * found.gpus_per_hour + policy.energy_price_per_kwh * found.energy_kwh
        )
        assert plan.certificate is not None and plan.certificate.bound is not None
        assert plan.certificate.bound <= cost * (1 + 1e-9)


@pytest.mark.slow
def test_for_throughput_the_fleet_serves_the_largest_sum_of_shares() -> None:
    """One V100 GPU's worth for two services: money serves the larger rate first, throughput the larger share."""
    world = snapshot(search=100.0, ads=30_000.0)
    problem = formulate(asking(world, objective="throughput")).problem
    assert {name: service.unserved_weight for name, service in problem.services.items()} == {
        "shop/search": 1 / 100.0, "shop/ads": 1 / 30_000.0,
    }  # fmt: skip
    plan = solve(problem, SolveBudget(None, 10))
    missed = {entry.service: entry.rate_per_second for entry in plan.unserved}
    assert missed.keys() == {"shop/ads"}
    used = {(instance.node, instance.gpu) for instance in plan.instances}
    assert used == {(name, gpu) for name in ("big-1", "small-1") for gpu in range(2)}  # all GPUs: they are paid anyway
    assert judge(problem, plan).cost.unserved == pytest.approx(1000.0 * missed["shop/ads"] / 30_000.0)
