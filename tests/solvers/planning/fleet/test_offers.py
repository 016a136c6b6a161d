"""Offers against their plain definition: every profiled shape, and what the latency function accepts of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from solvers.latency import max_rate, timeout_for
from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.fleet.offers import SHARED_PRESSURE, FleetShape, GpuPool, Offers, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Policy, Problem, Service
from tests.solvers.planning.random_problems import random_problem

SEEDS = range(0, 60, 3)


def drawn(seed: int) -> Problem:
    """Returns a random problem; of some, shares of GPUs are priced."""
    problem = random_problem(seed)
    return replace(problem, policy=replace(problem.policy, pricing="share")) if seed % 2 else problem


def services_and_pools(problem: Problem) -> Iterator[tuple[Service, GpuPool]]:
    for pool in FleetRooms(problem, (), ()).pools:
        for service in problem.services.values():
            yield service, pool


def most(problem: Problem, service: Service, variant: str, pool: GpuPool, batch: int, sm: int, alone: bool) -> float:
    """Returns what one instance carries, alone or in a GPU that is shared up to the pressure of offers."""
    policy, profile = problem.policy, problem.profiles[service.model, variant, pool.gpu_type]
    own = value_at(profile.demand.whole_pressure, sm)
    beside = 0.0 if alone or service.is_dedicated else max(0.0, SHARED_PRESSURE - own)
    if policy.pricing == "share" and not alone:
        beside = max(beside, policy.share_pressure * (100 - sm) / 100)
    exec_ms = value_at(profile.latency_ms[batch], sm) * (1 + profile.demand.most_sensitivity * beside)
    rate, _ = max_rate(
        batch, exec_ms * (1 + policy.exec_margin), service.slo_ms, service.percentile, service.variation
    )  # fmt: skip
    return min(rate, policy.utilization * batch * 1000 / exec_ms)


def profiled(problem: Problem, service: Service, pool: GpuPool) -> list[tuple[str, int]]:
    """Returns each variant and batch that the pool's type and templates admit."""
    if service.gpu_types is not None and pool.gpu_type not in service.gpu_types:
        return []
    template = {variant.name: variant.template for variant in problem.models[service.model]}
    return [
        (variant, batch)
        for variant in service.variants
        if template[variant] is None or pool.templates is None or template[variant] in pool.templates
        for batch in getattr(problem.profiles.get((service.model, variant, pool.gpu_type)), "latency_ms", ())
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_shapes_are_all_batches_at_each_tenth_up_to_the_knee_that_carry_anything(seed: int) -> None:
    problem = drawn(seed)
    for service, pool in services_and_pools(problem):
        wanted: dict[tuple[str, int, int], float] = {}
        for variant, batch in profiled(problem, service, pool):
            profile = problem.profiles[service.model, variant, pool.gpu_type]
            curve = profile.latency_ms[batch]
            knee = min(sm for sm, ms in curve if ms <= 1.15 * curve[-1][1])
            for sm in range(curve[0][0], knee + 1):
                rate = most(problem, service, variant, pool, batch, sm, alone=False)
                is_step = sm % 10 == 0 or sm in (curve[0][0], knee)
                if is_step and rate > 0 and profile.memory_gib[batch] <= problem.gpu_types[pool.gpu_type].memory_gib:
                    wanted[variant, batch, sm] = rate
        found = read_offers(problem).find_knee_shapes(service, [pool])
        assert {(s.variant, s.batch, s.sm_percent): s.rate_per_second for s in found} == pytest.approx(wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_shape_of_a_share_carries_most_for_its_price_and_the_best_of_all_comes_first(seed: int) -> None:
    problem = drawn(seed)
    for service, pool in services_and_pools(problem):
        memory_gib = problem.gpu_types[pool.gpu_type].memory_gib
        found = read_offers(problem).find_best_shapes(service, [pool])
        worth = [shape.rate_per_second / shape.share for shape in found]
        assert worth == sorted(worth, reverse=True)
        for shape in found:
            sm = shape.sm_percent
            for variant, batch in profiled(problem, service, pool):
                profile = problem.profiles[service.model, variant, pool.gpu_type]
                curve, needed_gib = profile.latency_ms[batch], profile.memory_gib[batch]
                if variant != shape.variant or needed_gib > memory_gib or not curve[0][0] <= sm <= curve[-1][0]:
                    continue
                share = 1.0 if service.is_dedicated else max(sm / 100, needed_gib / memory_gib)
                rate = most(problem, service, variant, pool, batch, sm, alone=False)
                assert shape.rate_per_second / shape.share >= rate / share * (1 - 1e-9)
                if batch == shape.batch:
                    assert (shape.rate_per_second, shape.share) == pytest.approx((rate, share))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_whole_shape_of_a_pool_carries_most_of_those_that_its_memory_and_watts_allow(seed: int) -> None:
    problem = drawn(seed)
    for service, pool in services_and_pools(problem):
        kind, fits = pool.type_in(problem), dict[tuple[str, int], bool]()
        rates: dict[tuple[str, int], float] = {}
        for variant, batch in profiled(problem, service, pool):
            profile = problem.profiles[service.model, variant, pool.gpu_type]
            sm = profile.latency_ms[batch][-1][0]
            rates[variant, batch] = most(problem, service, variant, pool, batch, sm, alone=True)
            watts = kind.idle_w + value_at(profile.demand.power_w, sm)
            fits[variant, batch] = profile.memory_gib[batch] <= kind.memory_gib and watts <= kind.max_w
        best = max((rate for key, rate in rates.items() if fits[key] or not any(fits.values())), default=0.0)
        found = read_offers(problem).find_whole_shapes(service, [pool])
        assert [shape.rate_per_second for shape in found] == pytest.approx([best] if best > 0 else [])
        assert all(fits[shape.variant, shape.batch] for shape in found if any(fits.values()))


@pytest.mark.parametrize("exec_ms", [1.0, 12.5, 30.0, 70.0, 95.0, 96.0, 200.0, 0.0, inf])
def test_an_accepted_rate_keeps_the_slo_and_the_utilization_and_no_higher_one_does(exec_ms: float) -> None:
    policy = Policy(utilization=0.8, exec_margin=0.05)
    service = Service("a", "shop", "m", ("v",), slo_ms=100.0, percentile=98.0, rate_per_second=1.0)
    rate = accepted_rate(policy, service, 8, exec_ms)
    if not 0 < exec_ms * 1.05 < 100:
        assert rate == 0
        return
    at_most = timeout_for(8, exec_ms * 1.05, 100.0, 98.0, rate)
    assert at_most is not None or rate == 0
    is_busy = rate * 1.001 * exec_ms / 8000 > 0.8
    assert is_busy or timeout_for(8, exec_ms * 1.05, 100.0, 98.0, rate * 1.001 + 1e-9) is None


def test_offers_are_found_once_for_a_problem_and_go_with_it() -> None:
    problem = random_problem(1)
    offers, (service, pool) = (
        read_offers(problem),
        next(pair for pair in services_and_pools(problem) if read_offers(problem).find_knee_shapes(pair[0], [pair[1]])),
    )
    first = offers.find_knee_shapes(service, [pool])
    again = read_offers(problem).find_knee_shapes(replace(service, rate_per_second=7.0), [pool])
    assert [id(shape) for shape in again] == [id(shape) for shape in first], "a rate changes no offer"
    stricter = offers.find_knee_shapes(replace(service, slo_ms=service.slo_ms / 1.5), [pool])
    assert sum(s.rate_per_second for s in stricter) < sum(s.rate_per_second for s in first)
    assert read_offers(replace(problem)) is not offers


def test_a_shape_has_the_pressure_and_watts_of_its_own_share() -> None:
    """A profile may state watts for more SM% than it has times for."""
    problem = random_problem(2)
    checked = 0
    for service, pool in services_and_pools(problem):
        for shape in Offers(problem).find_whole_shapes(service, [pool]):
            demand = problem.profiles[service.model, shape.variant, pool.gpu_type].demand
            assert shape.top_w == value_at(demand.power_w, shape.sm_percent)
            assert shape.pressure == value_at(demand.whole_pressure, shape.sm_percent)
            checked += shape.top_w < demand.power_w[-1][1]
            assert isinstance(shape, FleetShape)
    assert checked


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shape_on_an_idle_gpu_carries_what_it_carries_alone(seed: int) -> None:
    problem = random_problem(seed)
    rooms = FleetRooms(problem, (), ())
    view = rooms.view([[number] for number in range(len(rooms.places))])
    for service in problem.services.values():
        shapes = read_offers(problem).find_room_shapes(service, view, range(len(view.places)), lambda steps: None)
        for row, number, cap in zip(shapes.gpu.tolist(), shapes.way.tolist(), shapes.cap, strict=True):
            way, kind, demand = shapes.ways[number], view.types[row], shapes.ways[number].profile.demand
            for sm in range(5, 101, 19):
                watts = value_at(demand.power_w, sm) * way.ratio**-demand.power_exponent
                outside = problem.policy.share_pressure * (100 - sm) / 100 if problem.policy.pricing == "share" else 0.0
                slower = way.ratio**demand.clock_exponent * (1 + demand.most_sensitivity * outside)
                rates = [
                    accepted_rate(problem.policy, service, batch, slower * value_at(curve, sm))
                    for batch, curve in way.profile.latency_ms.items()
                    if way.profile.memory_gib[batch] <= kind.memory_gib and curve[0][0] <= sm <= curve[-1][0]
                ]
                wanted = max(rates, default=0.0) if watts <= kind.max_w - kind.idle_w else 0.0
                assert cap[sm] == pytest.approx(wanted, rel=1e-6), (service.name, view.places[row], sm)
