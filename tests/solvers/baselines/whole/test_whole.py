"""one-per-gpu, Melange and time-sliced: who shares a GPU, and that each keeps what it promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from math import ceil

import pytest

from solvers.baselines.whole import plan_melange, plan_one_per_gpu, plan_time_sliced
from solvers.baselines.whole.melange import LEAST_SLICES, cheapest_mixes
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
PLANS = [plan_one_per_gpu, plan_melange]
Plans = Callable[..., PlannerDraft]


def planned(plan: Plans, problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    state = RunningState(NOON, before.instances if before else (), (before.jobs or ()) if before else ())
    problem = replace(problem, state=state)
    draft = plan(problem, {}, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, draft.jobs or (), draft.unserved, draft.unplaced), keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def price(problem: Problem, draft: PlannerDraft) -> float:
    return sum(problem.nodes[line.node].price_per_hour for line in draft.instances)


def change_rates(problem: Problem, a: float, b: float) -> Problem:
    return problem.change_rates({"shop/a": a, "shop/b": b})


def capacities(problem: Problem) -> dict[str, dict[str, float]]:
    """Returns by service and GPU type the rate that a whole GPU carries."""
    pools = FleetRooms(problem, (), ()).pools
    return {
        name: {
            shape.pool.gpu_type: shape.rate_per_second
            for shape in read_offers(problem).find_whole_shapes(service, pools)
        }
        for name, service in problem.services.items()
    }


@pytest.mark.parametrize("plan", PLANS)
def test_an_instance_has_its_gpu_and_stays_there_while_it_is_needed(plan: Plans) -> None:
    first = planned(plan, fleet(600.0))
    assert not first.unserved
    assert len({line.place for line in first.instances}) == len(first.instances)
    again = planned(plan, fleet(590.0), first)
    assert {(line.id, line.place) for line in again.instances} == {(line.id, line.place) for line in first.instances}
    assert planned(plan, fleet(600.0)) == first
    full = planned(plan, fleet(1e5))
    assert len(full.instances) == 8
    assert {rest.reason for rest in full.unserved} == {"each instance needs a GPU of its own, and all are in use"}


def test_a_service_runs_on_the_type_on_which_all_of_it_costs_least() -> None:
    problem = fleet(300.0)
    most = capacities(problem)["shop/a"]
    for slow_price in (0.2, 1.9):
        priced = fleet(300.0, slow_price=slow_price)
        costs = {"fast": ceil(300 / most["fast"]) * 2.0, "slow": ceil(300 / most["slow"]) * slow_price}
        draft = planned(plan_one_per_gpu, priced)
        assert {priced.nodes[line.node].gpu_type for line in draft.instances} == {min(costs, key=lambda k: costs[k])}
        assert price(priced, draft) == pytest.approx(2 * min(costs.values()))


def test_where_the_cheapest_type_runs_out_the_next_one_carries_the_rest() -> None:
    problem = fleet(300.0)
    most = capacities(problem)["shop/a"]
    draft = planned(plan_one_per_gpu, change_rates(problem, 4.5 * most["slow"], 1.0))
    mine = [line for line in draft.instances if line.service == "shop/a"]
    kinds = [problem.nodes[line.node].gpu_type for line in mine]
    assert (kinds.count("slow"), kinds.count("fast")) == (4, 1)
    assert not draft.unserved


@pytest.mark.parametrize(("a", "b"), [(130.0, 400.0), (610.0, 90.0), (700.0, 680.0)])
@pytest.mark.parametrize("slow_price", [0.5, 0.7, 1.1])
def test_melange_is_as_cheap_as_the_best_division_of_all_slices(a: float, b: float, slow_price: float) -> None:
    """All divisions are tried: so many slices of each service on slow GPUs, the others on fast ones."""
    problem = change_rates(fleet(slow_price=slow_price), a, b)
    most = capacities(problem)
    best = float("inf")
    for slow_a, slow_b in product(range(LEAST_SLICES + 1), repeat=2):
        gpus: dict[str, int] = defaultdict(int)
        for name, rate, slow in (("shop/a", a, slow_a), ("shop/b", b, slow_b)):
            gpus["slow"] += ceil(slow / LEAST_SLICES * rate / most[name]["slow"] - 1e-6)
            gpus["fast"] += ceil((LEAST_SLICES - slow) / LEAST_SLICES * rate / most[name]["fast"] - 1e-6)
        if max(gpus.values()) <= 4:
            best = min(best, gpus["slow"] * slow_price + gpus["fast"] * 2.0)
    draft = planned(plan_melange, problem)
    assert not draft.unserved
    assert price(problem, draft) == pytest.approx(best)
    assert price(problem, draft) <= price(problem, planned(plan_one_per_gpu, problem)) + 1e-9


def test_two_time_slices_share_a_gpu_and_cost_no_more_than_a_gpu_each() -> None:
    for rate in (20.0, 150.0, 600.0):
        problem = fleet(rate)
        draft = planned(plan_time_sliced, problem)
        assert not draft.unserved
        on: dict[tuple[str, int], list[int]] = defaultdict(list)
        for line in draft.instances:
            on[line.place].append(line.sm_percent)
        assert set(map(tuple, on.values())) <= {(50,), (50, 50), (100,)}
        paid = sum(problem.nodes[node].price_per_hour for node, _ in on)
        assert paid <= price(problem, planned(plan_one_per_gpu, problem))


def test_time_slices_stay_where_they_are_while_they_are_needed() -> None:
    first = planned(plan_time_sliced, fleet(60.0))
    again = planned(plan_time_sliced, fleet(59.0), first)
    assert {(line.service, line.place) for line in again.instances} == {
        (line.service, line.place) for line in first.instances
    }


def test_melange_gives_a_service_all_of_its_least_instances_or_none() -> None:
    problem = fleet(50.0, min_instances=3)
    draft = planned(plan_melange, problem)
    assert len(draft.instances) == 6
    pools = FleetRooms(problem, (), ()).pools
    shapes = {
        name: read_offers(problem).find_whole_shapes(service, pools) for name, service in problem.services.items()
    }
    short = cheapest_mixes(problem, shapes, dict.fromkeys(pools, 2))
    assert sum(mix.count for mix in short) == 3
    assert len({mix.service.name for mix in short}) == 1
