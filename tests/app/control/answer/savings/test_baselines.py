"""Baselines judged by plain loops: they carry the load, no GPU is overfull, and the sums are right."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from app.control.answer.savings.baselines import (
    BASELINES,
    PLANNERS,
    Baseline,
    costs,
    least_rent,
    place_baseline,
    place_hetsev,
    plan_costs,
    plan_whole_services,
)
from app.control.answer.savings.market import open_market
from app.control.formulate.problem import build_problem
from simulation.world import read_documents
from solvers.latency import max_rate
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Limit, Place, Problem
from solvers.planning.search.promise import keep
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile, service

OLD = document("GpuType", "t4-8gb", {
    "memoryGib": 8, "smCount": 40, "idleW": 20, "maxW": 70, "clocksMhz": [1000], "pricePerHour": 0.4,
})  # fmt: skip
RATES = {"shop/a": 900.0, "shop/b": 30.0, "shop/c": 200.0, "lab/d": 60.0}


def fleet(pricing: str = "gpu") -> Problem:
    """Two types of GPU: the larger one three times the price. Service c is dedicated, d has two instances at least."""
    d = service("d", RATES["lab/d"], minInstances=2)
    d["metadata"]["tenant"] = "lab"
    return build_problem(
        read_documents(
            [
                gpu_type(), OLD, policy(pricing=pricing), node("n-1", 8), node("n-2", 8, "t4-8gb"),
                *(model(name) for name in "abcd"), *(profile(name) for name in "abcd"),
                *(profile(name, "t4-8gb", speed=0.4) for name in "abd"),
                service("a", RATES["shop/a"]), service("b", RATES["shop/b"]),
                service("c", RATES["shop/c"], isolation="dedicated"), d,
            ]
        )
    )  # fmt: skip


def exec_ms(problem: Problem, instance: Instance) -> float:
    """On the profile's curve, between its points in a straight line. A node is named as its GPU type."""
    found = problem.profiles[problem.services[instance.service].model, instance.variant, instance.node]
    for (low, slow), (high, fast) in pairwise(found.latency_ms[instance.batch]):
        if low <= instance.sm_percent <= high:
            return slow + (fast - slow) * (instance.sm_percent - low) / (high - low)
    raise AssertionError(f"{instance.sm_percent} is not on the curve")


def violations(problem: Problem, rates: dict[str, float], placed: list[Instance]) -> list[str]:
    found = []
    carried: dict[str, float] = defaultdict(float)
    gpus: dict[Place, list[Instance]] = defaultdict(list)
    for instance in placed:
        of = problem.services[instance.service]
        alone = exec_ms(problem, instance)
        most, _ = max_rate(instance.batch, alone * (1 + problem.policy.exec_margin), of.slo_ms, of.percentile)
        if instance.rate_per_second > most or instance.rate_per_second * alone / instance.batch / 1000 > 0.8 + 1e-9:
            found.append(f"{instance.service} is asked for more than its shape carries")
        carried[instance.service] += instance.rate_per_second
        gpus[instance.place].append(instance)
    for name, rate in rates.items():
        if carried[name] < rate * (1 - 1e-6):
            found.append(f"{name} is served {carried[name]} of {rate}")
        if sum(instance.service == name for instance in placed) < problem.services[name].min_instances:
            found.append(f"{name} has too few instances")
    for (gpu, _), there in gpus.items():
        models = [problem.services[resident.service].model for resident in there]
        if sum(resident.sm_percent for resident in there) > 100 or len(set(models)) < len(models):
            found.append(f"a {gpu} is overfull")
        if sum(resident.memory_gib for resident in there) > problem.gpu_types[gpu].memory_gib:
            found.append(f"a {gpu} lacks memory")
        if len(there) > 1 and any(problem.services[resident.service].is_dedicated for resident in there):
            found.append(f"a dedicated {gpu} is shared")
    return found


def test_hetsev_carries_the_load_on_gpus_that_are_not_overfull() -> None:
    problem = fleet()
    assert violations(problem, RATES, place_hetsev(problem, RATES)[1]) == []


@pytest.mark.parametrize("planner", PLANNERS.values())
def test_a_planner_serves_all_on_the_open_market_and_the_judge_accepts_its_plan(planner: str) -> None:
    """The fleet has a GPU of each type, and an hourly limit that the market knows nothing of."""
    problem = fleet()
    nodes = {name: replace(node, gpus=(0,)) for name, node in problem.nodes.items()}
    market = open_market(replace(problem, nodes=nodes, limits={"shop": Limit(gpus=0.1)}), RATES)
    plan = plan_whole_services(market, planner)
    assert judge(market, plan, keeps=keep).is_right
    carried: dict[str, float] = defaultdict(float)
    for line in plan.instances:
        carried[line.service] += line.rate_per_second
    assert carried == pytest.approx(RATES)
    kinds = {market.nodes[line.node].gpu_type for line in plan.instances}
    assert kinds == {"v100-16gb"} if planner == "largest" else "v100-16gb" in kinds
    if planner == "one-per-gpu":
        assert len({line.place for line in plan.instances}) == len(plan.instances)


def plan_of(problem: Problem, rates: dict[str, float]) -> Plan:
    """One instance of each service, two to a GPU of the large type; their shapes do not matter here."""
    return Plan(
        tuple(
            Instance(name, name, "n-1", number // 2, "fp16", 1, 0.0, 20 + 20 * (number % 2), 1.2, 1530, rate)
            for number, (name, rate) in enumerate(rates.items())
        )
    )


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("pricing", ["gpu", "share"])
def test_what_tenants_pay_is_what_the_gpus_cost(pricing: str, baseline: Baseline) -> None:
    problem = fleet(pricing)
    price = {"v100-16gb": 1.2, "t4-8gb": 0.4}
    total = 0.0
    for (gpu, _), there in place_baseline(problem, RATES, baseline).items():
        part = max(
            sum(resident.sm_percent for resident in there) / 100,
            sum(resident.memory_gib for resident in there) / problem.gpu_types[gpu].memory_gib,
        )
        if pricing == "gpu" or baseline == "one_per_gpu" or there[0].service == "shop/c":
            part = 1
        total += price[gpu] * part
    found = costs(problem, plan_of(problem, RATES))[baseline].by_tenant
    assert set(found) == {"shop", "lab"}
    assert sum(found.values()) == pytest.approx(total)


def test_one_instance_a_gpu_is_counted_by_hand() -> None:
    """On a whole v100 a batch of 8 takes 22.1 ms: a rate of r needs ceil(r / its capacity) GPUs at 1.2."""
    problem = fleet()
    most = 0.0
    for batch, alone in ((1, 7.9), (8, 22.1)):
        rate, _ = max_rate(batch, alone * 1.05, 120, 98)
        most = max(most, min(rate, 0.8 * batch * 1000 / alone))
    only = plan_of(problem, {"shop/c": 900.0})
    assert costs(problem, only)["one_per_gpu"].by_tenant == {"shop": pytest.approx(1.2 * ceil(900 / most))}


def test_a_plan_pays_its_gpus_by_weight() -> None:
    """Two services on one GPU at 1.2, of 20 and 40 SM%: a third and two thirds; a whole GPU for each further pair."""
    problem = fleet()
    found = plan_costs(problem, plan_of(problem, {"shop/a": 1.0, "lab/d": 1.0}))
    assert found == {"shop": pytest.approx(0.4), "lab": pytest.approx(0.8)}


def test_a_service_that_a_baseline_cannot_serve_saves_nothing() -> None:
    problem = fleet()
    services = dict(problem.services)
    services["shop/b"] = services["shop/b"].__class__(
        **{name: getattr(services["shop/b"], name) for name in services["shop/b"].__slots__} | {"slo_ms": 0.5}
    )
    hard = Problem(problem.gpu_types, problem.nodes, problem.models, problem.profiles, services, policy=problem.policy)
    plan = plan_of(hard, {"shop/b": 30.0})
    for found in costs(hard, plan).values():
        assert (found.by_tenant, found.not_served) == (plan_costs(hard, plan), ("shop/b",))


def test_a_service_that_a_baseline_cannot_serve_takes_no_gpu_from_the_others() -> None:
    problem = fleet()
    services = {**problem.services, "shop/b": replace(problem.services["shop/b"], slo_ms=0.5)}
    hard = replace(problem, services=services)
    others = {name: rate for name, rate in RATES.items() if name != "shop/b"}
    for baseline in BASELINES:
        assert place_baseline(hard, RATES, baseline) == place_baseline(hard, others, baseline)


@pytest.mark.parametrize("baseline", BASELINES)
def test_where_nodes_are_billed_whole_a_baseline_pays_for_whole_nodes_of_eight(baseline: Baseline) -> None:
    problem, plan = fleet("node"), plan_of(fleet("node"), RATES)
    price = {"v100-16gb": 1.2, "t4-8gb": 0.4}
    used = place_baseline(problem, RATES, baseline).keys()
    total = sum(8 * price[name] * ceil(sum(gpu == name for gpu, _ in used) / 8) for name in price)
    assert sum(costs(problem, plan)[baseline].by_tenant.values()) == pytest.approx(total)
    assert sum(plan_costs(problem, plan).values()) == pytest.approx(8 * 1.2)


def test_the_least_rent_mixes_sizes_of_nodes_and_gpus_that_are_paid_by_themselves() -> None:
    problem = fleet("node")
    whole = problem.nodes["n-1"]
    sizes = {f"n-{count}": replace(whole, name=f"n-{count}", gpus=tuple(range(count))) for count in (3, 8)}
    mixed = replace(problem, nodes=sizes)
    assert [least_rent(mixed, whole.gpu_type, count) for count in (0, 1, 3, 4, 7, 9)] == pytest.approx(
        [1.2 * paid for paid in (0, 3, 3, 6, 8, 9)]
    )
    owned = replace(whole, name="mine", pricing="gpu", purchase="owned")
    assert least_rent(replace(problem, nodes={**sizes, "mine": owned}), whole.gpu_type, 4) == pytest.approx(4.8)
