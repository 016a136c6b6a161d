"""Tiny fleets with language models: every plan is right, and no bound is above the best of all plans."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import inf
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solvers.planning.fleet.token_shapes import TokenShape
from solvers.planning.judge import judge
from solvers.planning.mixed import MixedCase
from solvers.planning.problem import Policy, Problem, Service
from solvers.planning.solve import SolveBudget, find
from solvers.planning.wide.programme import Terms, choose
from tests.solvers.planning.wide.wide_fleets import chat, fleet, photos, summaries

pytestmark = pytest.mark.slow

EXAMPLES = 150 if os.environ.get("GPUWRIGHT_SOAK") else 8
RATES = (0.2, 1.0, 3.0, 8.0)  # few, so that what a shape carries is computed once


@st.composite
def drawn(draw: st.DrawFn, *, ordinary: bool = False) -> Problem:
    """A fleet of one or two nodes with one or two language models, and an ordinary service."""
    services: list[Service] = [chat(draw(st.sampled_from(RATES)), priority=draw(st.sampled_from((1, 100))))]
    if draw(st.booleans()):
        services.append(summaries(draw(st.sampled_from(RATES)), min_instances=draw(st.integers(1, 2))))
    if ordinary:
        services.append(photos(draw(st.sampled_from((100.0, 900.0)))))
    counts = draw(st.lists(st.integers(1, 8), min_size=1, max_size=2))
    policy = Policy(energy_price_per_kwh=draw(st.sampled_from((0.0, 0.3))))
    made = fleet(
        *services, nodes={f"n{number}": count for number, count in enumerate(counts)},
        linked=draw(st.sampled_from((0, 4))), policy=policy,
    )  # fmt: skip
    pricing: Literal["gpu", "node"] = "gpu" if draw(st.booleans()) else "node"
    return replace(made, nodes={name: replace(node, pricing=pricing) for name, node in made.nodes.items()})


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn(ordinary=True))
def test_plans_of_random_fleets_are_right_and_their_bound_is_no_higher_than_their_cost(problem: Problem) -> None:
    plan = find(problem, SolveBudget(None, 2), alone=True).plan
    verdict = judge(problem, plan, simulate=False)
    assert verdict.is_right, verdict.violations
    certificate = plan.certificate
    assert certificate
    assert "a bug in the planner" not in certificate.method
    assert "refuses" not in certificate.method
    assert certificate.bound is not None
    assert certificate.bound <= certificate.cost.total * (1 + 1e-6)


@st.composite
def capped(draw: st.DrawFn) -> Problem:
    """The same with two clocks, at which a GPU draws 360 or 300 W, and a cap for each GPU."""
    made = draw(drawn())
    kinds = {name: replace(kind, clocks_mhz=(0.8 * kind.top_clock_mhz, kind.top_clock_mhz), max_w=400.0)
             for name, kind in made.gpu_types.items()}  # fmt: skip
    caps = st.sampled_from((150.0, 330.0, 400.0))
    nodes = {
        name: replace(node, caps_w=tuple(draw(caps) for _ in node.gpus)) for name, node in made.nodes.items()
    }  # fmt: skip
    return replace(made, gpu_types=kinds, nodes=nodes)


@settings(max_examples=2 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(capped())
def test_plans_under_caps_are_right_and_no_plan_beats_their_bound(problem: Problem) -> None:
    case = MixedCase(problem)
    bound = case.bound(None)
    assert bound is not None
    assert bound <= _best(case, problem) * (1 + 1e-6)
    plan = find(problem, SolveBudget(None, 0), alone=True).plan
    verdict = judge(problem, plan, simulate=False)
    assert verdict.is_right, verdict.violations
    assert plan.certificate
    assert "refuses" not in plan.certificate.method
    assert bound <= plan.certificate.cost.total * (1 + 1e-6)


@settings(max_examples=2 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn())
def test_no_plan_beats_the_bound_of_language_models_nor_the_plan_that_is_found(problem: Problem) -> None:
    case = MixedCase(problem)
    best = _best(case, problem)
    bound = case.bound(None)
    assert bound is not None
    assert bound <= best * (1 + 1e-6)
    found = choose(problem, case.groups, case.shapes, Terms())
    plan = find(problem, SolveBudget(None, 0), alone=True).plan
    assert found is not None
    assert plan.certificate
    assert plan.certificate.cost.total <= best * (1 + 1e-4) + 1e-6


def _best(case: MixedCase, problem: Problem) -> float:
    """Returns the least cost of all ways to put instances onto the nodes, one link group after the other."""
    links = [
        (node, tuple(problem.type_at((node.name, index)).max_w for index in link))
        for group in case.groups
        for node in group.nodes
        for link in group.links
    ]
    ways = [_fillings(problem, case.shapes, caps_w) for _, caps_w in links]
    best = inf
    for filling in product(*ways):
        best = min(best, _cost(problem, [(node, shapes) for (node, _), shapes in zip(links, filling, strict=True)]))
    return best


def _fillings(problem: Problem, shapes: list[TokenShape], caps_w: tuple[float, ...]) -> list[tuple[TokenShape, ...]]:
    """Returns every set of shapes that fits onto linked GPUs with these caps."""
    size = len(caps_w)
    found: list[tuple[TokenShape, ...]] = []
    for number in range(size + 1):
        sets = combinations_with_replacement(shapes, number)
        found += [chosen for chosen in sets if _fits(problem, chosen, caps_w)]
    return found


def _fits(problem: Problem, chosen: tuple[TokenShape, ...], caps_w: tuple[float, ...]) -> bool:
    """Returns whether each instance finds its GPUs: the hottest take first what allows their watts."""
    left = sorted(caps_w, reverse=True)
    drawn = [(problem.gpu_types[shape.gpu_type].idle_w + shape.busy_w, shape.degree) for shape in chosen]
    for watts, degree in sorted(drawn, reverse=True):
        if len(left) < degree or left[degree - 1] < watts:
            return False
        left = left[degree:]
    return True


def _cost(problem: Problem, filled: list[tuple[object, tuple[TokenShape, ...]]]) -> float:
    total = 0.0
    for node in problem.nodes.values():
        here = [shape for other, shapes in filled if other is node for shape in shapes]
        gpus = sum(shape.degree for shape in here)
        whole = node.pricing == "node" and node.gpu_count > 1
        total += node.price_per_hour * (node.gpu_count if whole and gpus else gpus)
        idle = problem.gpu_types[node.gpu_type].idle_w
        total += sum(s.degree * (idle + s.busy_w) for s in here) / 1000 * problem.policy.energy_price_per_kwh
        if sum(shape.cpu_cores for shape in here) > node.cpu_cores:
            return inf
    lines = [shape for _, shapes in filled for shape in shapes]
    for name, service in problem.services.items():
        mine = [shape.rate_per_second for shape in lines if shape.service == name]
        rest = service.rate_per_second - sum(mine)
        if 0 < len(mine) < service.min_instances:
            return inf
        if rest > 1e-5 * service.rate_per_second:
            total += problem.policy.unserved_price * service.priority / 100 * max(rest, 1.0)
    return total
