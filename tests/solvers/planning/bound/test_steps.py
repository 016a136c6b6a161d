"""Rates rounded in steps: what instances fill together, the line above it, and what the rows add to a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning import bound
from solvers.planning.fleet.grids import Floats
from solvers.planning.problem import GpuType, Node, Problem, Profile, Service, Variant, gpu_indexes
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from solvers.planning.steps import NO_STEPS, RateSteps, worths
from tests.solvers.planning.bound.compiled_steps import rounded, step_line
from tests.solvers.planning.bound.proved import bound_at
from tests.solvers.planning.bound.test_bound import cheapest, last, problems
from tests.support.soak import scaled

EXAMPLES = scaled(300, 10)
LENGTHS = st.floats(0.05, 20)
RISES = st.floats(0.02, 1)
RATES = st.floats(0, 50)


@given(RATES, RATES, LENGTHS, RISES)
def test_two_rates_fill_no_fewer_steps_than_their_sum(one: float, other: float, length: float, rise: float) -> None:
    assert rounded(one, length, rise) + rounded(other, length, rise) >= rounded(one + other, length, rise) - 1e-9
    assert rounded(one + other, length, rise) >= rounded(one, length, rise) - 1e-9


@given(RATES.filter(lambda rate: rate > 0), LENGTHS, RISES)
def test_a_rate_fills_the_same_in_both_kinds_of_loop(rate: float, length: float, rise: float) -> None:
    steps = RateSteps.of_rates(np.zeros(1, dtype=np.int64), np.array([length]), np.array([rise]), np.ones(1))
    assert steps.filled(np.array([rate]))[0] == pytest.approx(rounded(rate, length, rise), abs=1e-9)


@given(LENGTHS, RISES, st.floats(0, 3), st.floats(0.01, 2), RATES, st.floats(0, 1))
def test_no_rounded_rate_exceeds_its_line(
    length: float, rise: float, least: float, width: float, most: float, left: float
) -> None:
    """From the least on that the resident's own pressure leaves, where its rate is at most the rate's line."""
    ends = np.zeros(2)
    step_line(length, rise, least, width, most, most * left, ends)
    for part in np.linspace(0, 1, 101):
        if part * width >= least:
            rate = most * (1 - part + part * left)
            assert rounded(rate, length, rise) <= (1 - part) * ends[0] + part * ends[1] + 1e-9 * (1 + abs(ends[0]))


@pytest.mark.slow
@settings(max_examples=scaled(200, 20))
@given(
    st.floats(0, 2), st.floats(0.5, 40), st.floats(0.01, 5),
    st.lists(st.tuples(st.floats(1.01, 5.5), st.floats(0, 3)), max_size=3),
)  # fmt: skip
def test_the_least_worth_is_that_over_all_unserved_amounts(
    price: float, need: float, unserved_price: float, drawn: list[tuple[float, float]]
) -> None:
    counts, prices = np.array([count for count, _ in drawn]), np.array([price for _, price in drawn])
    rise = np.maximum(counts - np.floor(counts), 0.02)
    steps = RateSteps.of_rates(np.zeros(len(drawn), dtype=np.int64), need / counts, rise, np.floor(counts) + 1)
    found = worths(np.array([price]), np.array([need]), np.array([unserved_price]), steps, prices)
    least = found.least(np.ones(1), 1)[0, 0]

    def total(rate: float) -> float:
        worth = price * rate + float((steps.filled(np.array([rate])) * prices).sum()) if rate > 0 else 0.0
        return worth + (unserved_price * max(need - rate, 1.0) if rate < need else 0.0)

    assert least <= min(total(rate) for rate in np.linspace(0, need, 2001)) + 1e-9


def drawn_steps(need: Floats, rng: np.random.Generator) -> RateSteps:
    services = np.sort(rng.integers(len(need), size=6))
    counts = rng.uniform(1.05, 5, size=6)
    return RateSteps.of_rates(services, need[services] / counts, counts - np.floor(counts), np.floor(counts) + 1)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_plan_costs_less_than_any_prices_of_steps_prove(problem: Problem, seed: int) -> None:
    cost, t, rng = cheapest(problem), tables(problem), np.random.default_rng(seed)
    of_rates = last(problem).prices[: len(t.services)]
    for scale in (0.01, 0.1, 1.0):
        steps = drawn_steps(t.rate, rng)
        prices = np.concatenate([of_rates * rng.uniform(0, 1, len(of_rates)), rng.exponential(scale, len(steps))])
        assert bound_at(t, prices, steps) <= cost * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A", "B", "C", "D", "E", "F", "G30", "G95"])
@pytest.mark.parametrize("seed", range(scaled(40, 1)))
def test_no_plan_of_a_small_fleet_costs_less(name: str, seed: int) -> None:
    problem = family(name, 6, 3, seed)
    certificate = solve(problem, SolveBudget(seconds=None, work=30)).certificate
    assert certificate
    assert last(problem).bound <= certificate.cost.total * (1 + 1e-6)


@pytest.mark.slow
def test_steps_prove_more_than_prices_of_rates() -> None:
    """The linear programme over rates alone ends at 7.2934: GPUs for 7.3."""
    problem = family("A", 8, 4, 0)
    assert last(problem, 10**6).bound > 7.5


def one_service(instances: int) -> Problem:
    curve = ((20, 10.0), (100, 9.0))
    return Problem(
        gpu_types={"a": GpuType("a", 16, 0, 500, (1000.0,))},
        nodes={"n": Node("n", "a", gpu_indexes(4), 64, 512, 1.0)},
        models={"m": (Variant("v", 1.0),)},
        profiles={("m", "v", "a"): Profile("m", "v", "a", {1: curve}, {1: 0.5})},
        services={"s/m": Service("s/m", "s", "m", ("v",), 200.0, 90.0, 10.0, min_instances=instances)},
    )


@pytest.mark.parametrize("is_dedicated", [False, True])
def test_three_instances_of_a_service_cost_three_gpus_where_a_model_may_run_once(
    is_dedicated: bool,
) -> None:
    for instances in (1, 3):
        problem = one_service(instances)
        service = replace(problem.services["s/m"], is_dedicated=is_dedicated)
        found = last(replace(problem, services={"s/m": service}))
        assert found.bound == pytest.approx(instances, rel=1e-3)


def test_without_room_for_its_instances_a_service_is_unserved_at_its_price() -> None:
    problem = one_service(5)
    cheap = replace(problem, policy=replace(problem.policy, unserved_price=0.01))
    assert last(cheap).bound == pytest.approx(0.1, rel=1e-3)


def test_steps_keep_their_meaning_where_they_are_scaled() -> None:
    steps = RateSteps.of_rates(np.array([0, 1]), np.array([2.0, 3.0]), np.array([0.5, 0.5]), np.array([2.0, 2.0]))
    longer = steps.scaled(np.array([2.0, 1.0]))
    assert longer.filled(np.array([6.0, 4.0])) == pytest.approx(steps.filled(np.array([3.0, 4.0])))
    assert len(NO_STEPS.plus(steps).at(np.array([1]))) == 1


@pytest.mark.slow
def test_of_many_services_instances_are_counted_before_prices_have_converged() -> None:
    problem = family("A", 50, 140, 1)
    several = {name: replace(service, min_instances=3) for name, service in list(problem.services.items())[:9]}
    t = tables(replace(problem, services={**problem.services, **several}))
    found = next(found for found in bound.rounds(t, 10_000_000) if len(found.steps))
    assert not found.converged
    assert len(found.steps) == 9
    assert (found.steps.length <= 0.0).all()
