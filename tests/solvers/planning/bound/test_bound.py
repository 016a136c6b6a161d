"""The bound is below every valid plan's cost at any prices, and close to what the linear programme allows."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers import latency
from solvers.planning import bound
from solvers.planning.finish import about_bound
from solvers.planning.pressures import PressureCurve
from solvers.planning.problem import (
    Curve,
    Demand,
    GpuType,
    Node,
    Policy,
    Problem,
    Profile,
    Service,
    Variant,
    gpu_indexes,
)
from solvers.planning.search.arrays import MOST_RESIDENTS
from solvers.planning.search.tables import tables
from tests.solvers.planning.bound.proved import bound_at
from tests.solvers.planning.bound.tiny_plans import Served, cheapest_states, together, unserved_cost

SMS = (20, 40, 60, 100)
EXAMPLES = 300 if os.environ.get("GPUWRIGHT_SOAK") else 6


@cache
def carried(batch: int, exec_ms: float, slo_ms: float, percentile: float, policy: Policy) -> float:
    judged = exec_ms * (1 + policy.exec_margin)
    found = latency.max_rate(batch, judged, slo_ms, percentile)[0]
    return min(found, 1000 * policy.utilization * batch / exec_ms)


def at(curve: Curve, sm: int) -> float:
    return float(np.interp(sm, [point for point, _ in curve], [value for _, value in curve]))


def pressures_at(curve: PressureCurve, sm: int) -> tuple[float, float]:
    """Returns the pressures on compute and on bandwidth."""
    return at(tuple((x, y.real) for x, y in curve), sm), at(tuple((x, y.imag) for x, y in curve), sm)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """One to three services of up to two models, one or two kinds of GPU."""
    kinds = {
        name: GpuType(name, draw(st.sampled_from([4.0, 16.0])), 20, 500, (1000.0,))
        for name in draw(st.sampled_from([("a",), ("a", "b")]))
    }
    models = ("m", "n")
    profiles = {}
    for model, kind in product(models, kinds):
        first = draw(st.floats(2, 20))
        curves = {
            batch: tuple((sm, first * (0.7 + 0.3 * batch) * (0.8 + 20 / sm)) for sm in SMS)
            for batch in draw(st.sampled_from([(1,), (1, 8)]))
        }
        rising = draw(st.booleans())
        low = draw(st.floats(0, 1))
        both = complex(1, draw(st.sampled_from([0.0, 0.0, 0.4, 2.0])))
        pressure = ((20, low * both), (100, 1.0 * both)) if rising else ((100, low * both),)
        watts = ((20, 30.0), (100, 200.0))
        feels = complex(draw(st.sampled_from([0.0, 0.2, 0.9])), draw(st.sampled_from([0.0, 0.3])))
        demand = Demand(pressure=pressure, sensitivity=feels, power_w=watts)
        key = (model, "v", kind)
        profiles[key] = Profile(*key, curves, {batch: 1.0 + 0.1 * batch for batch in curves}, demand)
    nodes = [
        Node(
            f"n-{kind}-{number}",
            kind,
            gpu_indexes(draw(st.integers(1, 2))),
            64,
            512,
            draw(st.sampled_from([0.7, 1.0, 1.9])),
            pricing=draw(st.sampled_from(["gpu", "node"])),
        )
        for kind in kinds
        for number in range(draw(st.integers(1, 2)))
    ]
    services = [
        Service(
            f"s/{number}", "s", draw(st.sampled_from(models)), ("v",), draw(st.floats(5, 150)),
            draw(st.sampled_from([90.0, 98.0])), draw(st.floats(1, 600)), is_dedicated=draw(st.integers(0, 4)) == 0,
            min_instances=draw(st.sampled_from([1, 1, 2, 3])), unserved_weight=draw(st.sampled_from([1.0, 1.0, 0.02])),
        )
        for number in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    return Problem(
        gpu_types=kinds,
        nodes={node.name: node for node in nodes},
        models={model: (Variant("v", 1.0),) for model in models},
        profiles=profiles,
        services={service.name: service for service in services},
        policy=Policy(
            pricing=draw(st.sampled_from(["gpu", "gpu", "share"])),
            same_model_per_gpu=draw(st.sampled_from([1, 2])),
            unserved_price=draw(st.sampled_from([0.01, 1000.0])),
            energy_price_per_kwh=draw(st.sampled_from([0.0, 0.0, 3.0])),
            money_weight=draw(st.sampled_from([1.0, 1.0, 0.1, 1e-6])),
        ),
    )


def fillings(problem: Problem, kind: str, price: float) -> dict[Served, float]:
    """Lists what a GPU can carry of each service, which run there, and its cost, over all residents on measured SM%.

    Of a service that asks for two instances there is one on a GPU at most.
    """
    names, policy, gpu = sorted(problem.services), problem.policy, problem.gpu_types[kind]
    choices = [(number, sm) for number in range(len(names)) for sm in SMS]
    found = {(0.0,) * 4 * len(names): 0.0}
    for count in range(1, 4):
        for residents in combinations_with_replacement(choices, count):
            used = sum(sm for _, sm in residents)
            of = [problem.services[names[number]] for number, _ in residents]
            alone = any(s.is_dedicated for s in of)
            if used > 100 or (alone and len({s.name for s in of}) > 1):
                continue
            if any(s.min_instances == 2 and of.count(s) > 1 for s in of):
                continue
            if max(sum(s.model == t.model for s in of) for t in of) > policy.same_model_per_gpu:
                continue
            profiles = [problem.profiles[s.model, "v", kind] for s in of]
            own = [pressures_at(p.demand.pressure, sm) for p, (_, sm) in zip(profiles, residents, strict=True)]
            compute, bandwidth = [each for each, _ in own], [each for _, each in own]
            for batches in product(*(p.latency_ms for p in profiles)):
                memory = sum(p.memory_gib[b] for p, b in zip(profiles, batches, strict=True))
                if memory > gpu.memory_gib:
                    continue
                served, watts = [0.0] * len(names), gpu.idle_w
                for i, (number, sm) in enumerate(residents):
                    feels = profiles[i].demand.sensitivity
                    slow = 1 + feels.real * (sum(compute) - compute[i]) + feels.imag * (sum(bandwidth) - bandwidth[i])
                    if policy.pricing == "share":
                        slow *= 1 + max(feels.real, feels.imag) * policy.share_pressure * (100 - used) / 100
                    exec_ms = at(profiles[i].latency_ms[batches[i]], sm) * slow
                    rate = carried(batches[i], exec_ms, of[i].slo_ms, of[i].percentile, policy)
                    rate = min(rate, of[i].rate_per_second)
                    served[number] += rate
                    watts += at(profiles[i].demand.power_w, sm) * rate * exec_ms / 1000 / batches[i]  # or more
                share = 1.0 if alone or policy.pricing == "gpu" else max(used / 100, memory / gpu.memory_gib)
                cost = price * share + watts / 1000 * policy.energy_price_per_kwh
                services = [problem.services[name] for name in names]
                runs = [float(a > 0) for a in served]
                capped = [min(a, service.rate_per_second) for a, service in zip(served, services, strict=True)]
                largest = [a * (service.min_instances == 2) for a, service in zip(capped, services, strict=True)]
                key = (*capped, *runs, *largest, *[0.0] * len(names))
                found[key] = min(found.get(key, np.inf), cost)
    return {
        a: cost
        for a, cost in found.items()
        if not any(
            a != b and cost >= other and all(x <= y for x, y in zip(a, b, strict=True)) for b, other in found.items()
        )
    }


def cheapest(problem: Problem) -> float:
    """Returns the least cost of any plan that uses the measured SM% alone, however three instances share a rate."""
    services = [problem.services[name] for name in sorted(problem.services)]
    reached: dict[Served, float] = {(0.0,) * 4 * len(services): 0.0}
    for node in problem.nodes.values():
        whole = node.pricing == "node" and problem.policy.pricing == "gpu"
        price = node.price_per_hour * problem.policy.money_weight
        options = fillings(problem, node.gpu_type, 0.0 if whole else price)
        without = reached
        if whole:
            reached = {served: cost + price * node.gpu_count for served, cost in reached.items()}
        for _ in node.gpus:
            grown = dict(reached)
            for served, cost in reached.items():
                for filling, more in options.items():
                    total = together(services, served, filling)
                    grown[total] = min(grown.get(total, np.inf), cost + more)
            reached = cheapest_states(problem, services, grown)
        for served, cost in without.items():
            reached[served] = min(reached.get(served, np.inf), cost)
    best = np.inf
    for served, cost in reached.items():
        runs = served[len(services) : 2 * len(services)]
        if any(0 < on < service.min_instances for on, service in zip(runs, services, strict=True)):
            continue
        best = min(best, cost + unserved_cost(problem, services, served))
    return float(best)


def last(problem: Problem, work: int = 200_000) -> bound.Round:
    return list(bound.rounds(tables(problem), work))[-1]


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_plan_costs_less_than_the_bound(problem: Problem, seed: int) -> None:
    cost = cheapest(problem)
    before = -np.inf
    for found in bound.rounds(tables(problem), 10**6):
        assert before <= found.bound <= cost * (1 + 1e-9)
        before = found.bound
    rng = np.random.default_rng(seed)
    t = tables(problem)
    for scale in (0.001, 0.1, 10.0):
        assert bound_at(t, rng.exponential(scale, len(t.services))) <= cost * (1 + 1e-9)


def crowd(residents: int) -> Problem:
    """A GPU with room for so many residents of pressure 1, and just enough for their rates."""
    curve = ((100 // residents, 10.0), (100, 9.9))
    models = [f"m{number:02}" for number in range(residents)]
    demand = Demand(pressure=((100, 1.0),), sensitivity=0.1)
    slowed = 10.0 * (1 + 0.1 * (residents - 1))
    rate = carried(1, slowed, 200.0, 90.0, Policy())
    assert rate > 0
    return Problem(
        gpu_types={"a": GpuType("a", 64, 0, 500, (1000.0,))},
        nodes={"n": Node("n", "a", gpu_indexes(residents), 64, 512, 1.0)},
        models={model: (Variant("v", 1.0),) for model in models},
        profiles={(m, "v", "a"): Profile(m, "v", "a", {1: curve}, {1: 0.5}, demand) for m in models},
        services={f"s/{m}": Service(f"s/{m}", "s", m, ("v",), 200.0, 90.0, rate * 0.999) for m in models},
    )


def test_thirty_residents_of_full_pressure_on_one_gpu_are_thought_of() -> None:
    found = last(crowd(30))
    assert found.bound <= 1.0
    assert found.bound >= 0.9


@pytest.mark.slow
def test_more_residents_than_an_exact_search_tries_are_thought_of() -> None:
    found = last(crowd(60))
    assert 0.5 <= found.bound <= 2.0


@pytest.mark.slow
def test_two_runs_are_equal() -> None:
    problem = family("G30", 20, 10, 3)
    runs = [[(r.bound, r.work) for r in bound.rounds(tables(problem), 200_000)] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_the_last_bound_is_what_its_prices_prove() -> None:
    """Where there are too many choices of GPUs to list each."""
    t = tables(family("G30", 40, 10, 3))
    found = list(bound.rounds(t, 200_000))[-1]
    assert bound_at(t, found.prices, found.steps) >= found.bound * 0.99


@pytest.mark.slow
def test_a_higher_price_of_what_is_left_out_never_lowers_the_bound() -> None:
    problem = family("A", 8, 5, 3)
    bounds = []
    for price in (0.001, 0.01, 0.1, 1.0, 1000.0):
        dearer = replace(problem, policy=replace(problem.policy, unserved_price=price))
        bounds.append(last(dearer).bound)
    assert all(a <= b * (1 + 2e-3) for a, b in pairwise(bounds))


@pytest.mark.slow
def test_more_gpus_never_raise_the_bound() -> None:
    problem = family("G30", 8, 5, 3)
    doubled = {**problem.nodes, **{f"x{name}": replace(node, name=f"x{name}") for name, node in problem.nodes.items()}}
    assert last(replace(problem, nodes=doubled)).bound <= last(problem).bound * (1 + 2e-3)


@pytest.mark.slow
def test_a_bound_that_has_converged_is_at_its_programme() -> None:
    t = tables(family("D", 12, 5, 1))
    found = list(bound.rounds(t))
    assert all(reached.bound <= reached.programme * (1 + 1e-9) for reached in found)
    last = found[-1]
    assert last.converged
    assert last.programme <= last.bound * 1.0005
    assert about_bound(last, bound.left_out(t)) == (
        f"; bound {last.bound:.6g}, ignoring memory beyond the smallest batch, idle SMs times neighbours' pressure"
    )


def test_without_gpus_the_bound_is_what_leaving_everything_out_costs() -> None:
    problem = replace(family("A", 8, 4, 0), nodes={})
    services = problem.services.values()
    missed = sum(
        problem.policy.unserved_price * service.priority / 100 * service.rate_per_second for service in services
    )
    assert last(problem).converged
    assert last(problem).bound == pytest.approx(missed, rel=1e-4)


def test_what_the_bound_leaves_out_is_named_where_the_problem_has_it() -> None:
    problem = family("A", 8, 4, 0)
    memory = "memory beyond the smallest batch"
    assert bound.left_out(tables(problem)) == (memory,)
    one_batch = {
        key: replace(profile, latency_ms={1: profile.latency_ms[1]}, memory_gib={1: profile.memory_gib[1]})
        for key, profile in problem.profiles.items()
    }
    assert bound.left_out(tables(replace(problem, profiles=one_batch))) == ()
    crowded = replace(problem, policy=replace(problem.policy, clients_per_gpu=MOST_RESIDENTS - 1))
    assert bound.left_out(tables(crowded)) == (memory, "clientsPerGpu across models")
    assert bound.left_out(tables(family("F", 8, 4, 0))) == (memory, "the room that jobs take")


@pytest.mark.slow
def test_a_bound_exceeds_its_programme_only_by_the_step_to_the_next_cost() -> None:
    t = tables(family("A", 20, 8, 1))
    step = max(pool.price_per_hour for pool in t.pools)
    assert all(reached.bound <= reached.programme + step for reached in bound.rounds(t))
