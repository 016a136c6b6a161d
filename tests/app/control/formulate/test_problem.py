"""Files become the problem that is solved, with every default, price, variant, limit and running instance."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from app.control.formulate.problem import POLICY_FIELDS, build_problem, planning_policy
from app.manifests.kinds import SPECS
from app.manifests.model import Kind
from app.manifests.offline import Input, load
from solvers.planning.availability import Availability
from solvers.planning.problem import Demand, Instance, Job, JobProfile, Limit, PlacedJob, Policy, Problem, RunningState
from tests.app.control.as_manifests import manifests
from tests.app.manifests.test_contract_example import EXAMPLE
from tests.solvers.planning import small_world


def read(text: str) -> Problem:
    return build_problem(load([Input("fleet.yaml", text.encode())]))


def whole_problem() -> Problem:
    """Of every kind something, in another region, running."""
    problem = small_world.problem(pricing="share", power_budget_w=5000.0, energy_price_per_kwh=0.2)
    speeds = {"old": JobProfile(((20, 40.0),), 2.0, Demand(pressure=((100, 0.3),)))}
    jobs = {**problem.jobs, "lab/scan": Job("lab/scan", "lab", "offline", 5e5, speeds, None, 2.5, False, 7)}
    nodes = {**problem.nodes, "n1": replace(problem.nodes["n1"], region="eu", purchase="spot", price_per_hour=0.7)}
    running = tuple(replace(instance, exec_ms=0.0) for instance in small_world.plan().instances)
    state = RunningState(now=small_world.NOON, running=running, jobs=(PlacedJob("lab/slow", "n3", 0, 20, 4),))
    limits = {"shop": Limit(gpus=2, price_per_hour=4), "lab": Limit(price_per_hour=9)}
    search = replace(problem.services["shop/search"], availability=Availability("region", 1, 0.25))
    problem = replace(problem, services={**problem.services, search.name: search})
    return replace(problem, jobs=jobs, nodes=nodes, state=state, limits=limits, spare={"old": 8})


def test_a_problem_written_as_manifests_is_read_back_as_it_was() -> None:
    problem = whole_problem()
    assert read(json.dumps(manifests(problem))) == problem


def test_a_problem_of_nodes_that_are_billed_whole_is_read_back_as_it_was() -> None:
    problem = whole_problem()
    nodes = {
        name: replace(node, pricing="gpu" if node.is_paid_anyway else "node") for name, node in problem.nodes.items()
    }
    assert {node.pricing for node in nodes.values()} == {"gpu", "node"}
    problem = replace(problem, nodes=nodes, policy=replace(problem.policy, pricing="gpu"))
    assert read(json.dumps(manifests(problem))) == problem


def test_the_policys_defaults_are_those_of_manifests() -> None:
    wire = SPECS[Kind.POLICY].model_validate({}).model_dump(by_alias=True)
    assert wire["pricing"] == "node"  # which the nodes of a problem have, not its policy
    assert {name: wire[alias] for name, alias in POLICY_FIELDS.items()} | {"pricing": "gpu", "money_weight": 1.0} == {
        field.name: getattr(Policy(), field.name) for field in fields(Policy)
    }
    assert planning_policy({}) == Policy()
    assert planning_policy({"powerBudgetW": None, "utilization": 0.7}) == Policy(utilization=0.7)


def test_the_contracts_example_is_a_problem() -> None:
    problem = read(EXAMPLE)
    assert problem.nodes["node-1"].price_per_hour == 1.2  # owned in the default region: no price of its own
    assert problem.nodes["node-1"].is_paid_anyway
    assert problem.nodes["node-1"].templates == frozenset({"gpuwright-serve"})
    assert problem.spare == {"v100-16gb": 8}
    profile = problem.profiles["resnet50", "fp16", "v100-16gb"]
    assert profile.latency_ms[8] == ((10, 96.0), (20, 49.0), (40, 27.5), (60, 23.0), (100, 22.1))
    assert profile.demand.pressure == ((100, 0.7),)
    service = problem.services["shop/search"]
    assert (service.tenant, service.variants, service.slo_ms, service.percentile) == ("shop", ("fp16",), 80, 98)
    assert problem.limits == {"shop": Limit(16, 20)}
    job = problem.jobs["lab/finetune"]
    assert job.units == 1000  # the remainder of 200,000 by the State
    assert job.deadline == datetime(2026, 12, 1, tzinfo=UTC)
    assert problem.state == RunningState(
        datetime(2026, 11, 20, 10, 30, tzinfo=UTC),
        (Instance("i1", "shop/search", "node-1", 0, "fp16", 8, 0.0, 30, 1.9, 1530, 300.0),),
        (PlacedJob("lab/finetune", "node-1", 0, 40, 9.0),),
    )


TYPE = """\
apiVersion: gpuwright/v1
kind: GpuType
metadata: {name: t4}
spec: {memoryGib: 16, smCount: 40, pricePerHour: 3, idleW: 10, maxW: 70, clocksMhz: [1590, 300],
  prices: [{region: eu, purchase: spot, perHour: 1}, {region: eu, perHour: 2}, {purchase: reserved, perHour: 2.5}]}
---
apiVersion: gpuwright/v1
kind: Node
metadata: {name: n}
spec: {gpuType: t4, gpus: 1, cpuCores: 8, memoryGib: 64, WHERE}
---
apiVersion: gpuwright/v1
kind: Model
metadata: {name: m}
spec: {variants: [{name: a, accuracy: 0.6}, {name: b, accuracy: 0.7}, {name: c, accuracy: 0.8}]}
---
apiVersion: gpuwright/v1
kind: Service
metadata: {name: s}
spec: {model: m, slo: {latencyMs: 1, percentile: 99}, ratePerSecond: 1, ADMITS}
"""


def declared(where: str = "", admits: str = "", pricing: str = "") -> Problem:
    text = TYPE.replace(", WHERE", f", {where}" if where else "").replace(", ADMITS", f", {admits}" if admits else "")
    policy = f"---\napiVersion: gpuwright/v1\nkind: Policy\nmetadata: {{name: default}}\nspec: {{pricing: {pricing}}}\n"
    return read(text + policy if pricing else text)


@pytest.mark.parametrize(
    ("where", "price"),
    [
        ("", 3),
        ("region: eu", 2),
        ("region: eu, purchase: spot", 1),
        ("purchase: spot", 3),
        ("purchase: reserved", 2.5),
        ("region: us, purchase: reserved", 3),
    ],
)
def test_a_gpu_costs_what_its_region_and_purchase_say_or_what_its_type_says(where: str, price: float) -> None:
    assert declared(where).nodes["n"].price_per_hour == price


@pytest.mark.parametrize(
    ("pricing", "purchase", "of_policy", "of_node"),
    [
        ("gpu", "onDemand", "gpu", "gpu"),
        ("share", "spot", "share", "gpu"),
        ("node", "onDemand", "gpu", "node"),
        ("node", "spot", "gpu", "node"),
        ("node", "owned", "gpu", "gpu"),
        ("node", "reserved", "gpu", "gpu"),
    ],
)
def test_rented_nodes_are_billed_whole_where_the_policy_prices_nodes(
    pricing: str, purchase: str, of_policy: str, of_node: str
) -> None:
    problem = declared(f"purchase: {purchase}", pricing=pricing)
    assert (problem.policy.pricing, problem.nodes["n"].pricing) == (of_policy, of_node)
    assert declared(f"purchase: {purchase}").nodes["n"].pricing == (
        "gpu" if purchase in ("owned", "reserved") else "node"
    )


@pytest.mark.parametrize(
    ("admits", "variants"),
    [
        ("", ("a", "b", "c")),
        ("minAccuracy: 0.7", ("b", "c")),
        ("variants: [c, a]", ("a", "c")),
        ("variants: [a, b], minAccuracy: 0.65", ("b",)),
        ("variants: [a], minAccuracy: 0.65", ()),
    ],
)
def test_variants_and_least_accuracy_intersect(admits: str, variants: tuple[str, ...]) -> None:
    service = declared(admits=admits).services["default/s"]
    assert service.variants == variants
    assert (service.tenant, service.priority, service.min_instances, service.is_dedicated) == ("default", 100, 1, False)


def test_clocks_are_sorted_and_an_instance_without_a_clock_runs_at_the_highest() -> None:
    state = """\
---
apiVersion: gpuwright/v1
kind: State
metadata: {name: now}
spec: {running: [{service: default/s, node: n, gpu: 0, variant: a, batch: 1, smPercent: 10, memoryGib: 1}]}
"""
    problem = read(TYPE.replace(", WHERE", "").replace(", ADMITS", "") + state)
    assert problem.gpu_types["t4"].clocks_mhz == (300, 1590)
    assert problem.state
    assert problem.state.running[0].clock_mhz == 1590
    assert problem.state.now is None
