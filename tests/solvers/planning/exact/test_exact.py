"""Proofs of small instances equal brute force, and a harder problem is never cheaper."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning import exact
from solvers.planning.exact.patterns import Patterns
from solvers.planning.exact.search import ENOUGH_SHARE
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Limit, Problem
from solvers.planning.proofs import BOUND_STEPS, proofs
from solvers.planning.search.realise import PlacedInstances
from solvers.planning.search.tables import Tables, tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.small_fleets import fleets, least_cost
from tests.support.soak import SOAK, scaled

few = settings(
    deadline=None, max_examples=400 if SOAK else 60, derandomize=True, suppress_health_check=list(HealthCheck)
)


def proved(problem: Problem) -> exact.ExactProof:
    """Returns the last result; services that nothing can serve keep it from being a proof."""
    proof = list(exact.prove(tables(problem), 20_000))[-1]
    assert proof.proved or proof.bound >= 1000
    return proof


def plan_of(t: Tables, placed: PlacedInstances) -> Plan:
    """Makes instances of residents."""
    places = [place for pool in t.pools for place in pool.gpus]
    made: list[Instance] = []
    residents = zip(placed.gpu.tolist(), placed.offer.tolist(), placed.sm.tolist(), placed.batch.tolist(), strict=True)
    for (gpu, offer, sm, by), cap, clock in zip(residents, placed.cap.tolist(), placed.clock.tolist(), strict=True):
        node, index = places[gpu]
        service = t.services[int(t.offer_service[offer])]
        memory = float(t.memory_gib[int(t.offer_profile[offer]), by])
        clocks = t.problem.type_of(node).clocks_mhz
        clock_mhz = min(clocks, key=lambda mhz, ratio=clock, top=clocks[-1]: abs(top / mhz - ratio))  # type: ignore[misc]
        shape = (t.offer_variant[offer], int(t.batches[by]), 0.0, sm, memory, clock_mhz)
        made.append(Instance(f"i{len(made)}", service, node, index, *shape, cap))
    return Plan(tuple(made))


def in_plain(proof: exact.ExactProof) -> tuple[object, ...]:
    """All of a proof, as values that can be compared."""
    columns = ("gpu", "offer", "sm", "batch", "cap", "clock")
    placed = proof.placed and [getattr(proof.placed, name).tolist() for name in columns]
    return (proof.bound, proof.proved, proof.work, placed)


def lightened(gpus: int, services: int, seed: int, part: float) -> Problem:
    problem = family("A", gpus, services, seed)
    return problem.change_rates({name: s.rate_per_second * part for name, s in problem.services.items()})


@pytest.mark.slow
@few
@given(fleets())
def test_exact_is_brute_force_and_its_plan_is_right(problem: Problem) -> None:
    best = least_cost(problem)
    proof = proved(problem)
    if best == inf:
        assert not proof.placed
        return
    assert proof.proved and proof.placed is not None
    assert proof.bound == pytest.approx(best)
    plan = plan_of(tables(problem), proof.placed)
    served = {instance.service for instance in plan.instances}
    lost = tuple(Unserved(name, s.rate_per_second) for name, s in problem.services.items() if name not in served)
    verdict = judge(problem, replace(plan, unserved=lost), simulate=False)
    assert not verdict.violations
    assert verdict.cost.total == pytest.approx(best)


@pytest.mark.slow
@few
@given(fleets(), st.integers(0, 2), st.floats(0.6, 1.0), st.floats(1.0, 2.0))
def test_a_tighter_slo_a_dearer_gpu_or_a_smaller_fleet_never_lowers_the_cost(
    problem: Problem, which: int, tighter: float, dearer: float
) -> None:
    cost = proved(problem).bound
    name = sorted(problem.services)[which % len(problem.services)]
    service = problem.services[name]
    hurried = replace(problem, services={**problem.services, name: replace(service, slo_ms=service.slo_ms * tighter)})
    assert proved(hurried).bound >= cost - 1e-9
    nodes = {name: replace(node, price_per_hour=node.price_per_hour * dearer) for name, node in problem.nodes.items()}
    assert proved(replace(problem, nodes=nodes)).bound >= cost - 1e-9
    first = min(problem.nodes)
    fewer = {**problem.nodes, first: replace(problem.nodes[first], gpus=(0,))}
    if len(problem.nodes) > 1:
        del fewer[first]
    assert proved(replace(problem, nodes=fewer)).bound >= cost - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "services"), [(8, 4), (5, 3)])
def test_the_proved_plan_of_a_benchmark_is_right_and_costs_its_bound(gpus: int, services: int) -> None:
    problem = lightened(gpus, services, 1, 0.6)
    t = tables(problem)
    assert exact.applies(t)
    proofs = list(exact.prove(t, 5_000))
    assert proofs[-1].proved and proofs[-1].placed is not None
    verdict = judge(problem, plan_of(t, proofs[-1].placed), simulate=False)
    assert not verdict.violations
    assert verdict.cost.total == pytest.approx(proofs[-1].bound)
    assert [proof.bound for proof in proofs] == sorted(proof.bound for proof in proofs)


@pytest.fixture(scope="module")
def five() -> Problem:
    return lightened(5, 3, 2, 0.6)


@pytest.fixture(scope="module")
def five_proofs(five: Problem) -> list[exact.ExactProof]:
    return list(exact.prove(tables(five), 5_000))


@pytest.mark.slow
def test_the_same_problem_is_always_proved_the_same_way(five: Problem, five_proofs: list[exact.ExactProof]) -> None:
    nodes = {name: five.nodes[name] for name in sorted(five.nodes, reverse=True)}
    services = {name: five.services[name] for name in sorted(five.services, reverse=True)}
    found = list(exact.prove(tables(replace(five, nodes=nodes, services=services)), 5_000))
    assert [in_plain(proof) for proof in found] == [in_plain(proof) for proof in five_proofs]


@pytest.mark.slow
def test_too_little_work_leaves_a_bound_that_is_true(five: Problem, five_proofs: list[exact.ExactProof]) -> None:
    last = five_proofs[-1].work
    for work in range(0, last, max(1, last // 12)):
        proof = list(exact.prove(tables(five), work))[-1]
        assert proof.bound <= five_proofs[-1].bound


@pytest.mark.slow
@few
@given(fleets(), st.floats(1.01, 3.0))
def test_a_plan_that_others_found_is_proved_or_a_cheaper_one_is_found(problem: Problem, dearer: float) -> None:
    best = proved(problem)
    if best.proved and best.placed is not None and len(best.placed):
        same = list(exact.prove(tables(problem), 20_000, known=best.bound))[-1]
        assert same.proved and same.placed is None and same.bound == pytest.approx(best.bound)
        less = list(exact.prove(tables(problem), 20_000, known=best.bound * dearer))[-1]
        assert less.proved and less.placed is not None and less.bound == pytest.approx(best.bound)


@pytest.mark.slow
def test_prices_pay_for_every_need_where_one_gpu_can_carry_just_what_is_needed_of_one() -> None:
    problem = lightened(8, 4, 1, 0.6)
    t = tables(problem)
    space = Patterns(t)
    every = np.array([len(pool.gpus) for pool in t.pools])
    v, worth, _ = space.priced(every, ENOUGH_SHARE)
    assert v.sum() == pytest.approx(1.0) and float(every @ worth) >= ENOUGH_SHARE
    alone = np.eye(space.needs)
    most = np.array([float(every @ space.worths(alone[need], range(len(t.pools)))) for need in range(space.needs)])
    assert most.min() >= float(every @ worth) - 1e-6  # no single need proves more
    assert ((v > 0) | ~space.served).sum() > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_two_plans_of_a_proof_have_the_same_step(seed: int) -> None:
    found = [
        proof for proof in proofs(tables(lightened(8, 4, seed, 0.6)), 10**6) if isinstance(proof, exact.ExactProof)
    ]
    plans = {id(proof.placed): -(-proof.work // BOUND_STEPS) for proof in found if proof.placed}
    assert list(plans.values()) == sorted(set(plans.values()))


@pytest.mark.slow
def test_small_second_instances_do_not_count_as_two() -> None:
    problem = lightened(5, 3, 2, 0.6)
    services = {name: replace(service, min_instances=2) for name, service in problem.services.items()}
    space = Patterns(tables(replace(problem, services=services)))
    rates = np.repeat([[1.0], [0.01], [0.25], [0.0]], len(services), axis=1)
    copies = space.add_copies(rates)[:, len(services)]
    assert copies.tolist() == pytest.approx([0.5, 0.14, 0.5, 0.0])


@pytest.mark.slow
def test_a_limit_of_a_tenant_is_left_out_of_the_proof_so_that_no_plan_comes_with_it(
    five: Problem, five_proofs: list[exact.ExactProof]
) -> None:
    limited = replace(five, limits={"bench": Limit(gpus=1.0)})
    proof = list(exact.prove(tables(limited), 5_000))[-1]
    assert not proof.proved and proof.placed is None and proof.bound == pytest.approx(five_proofs[-1].bound)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [{"pricing": "share"}, {"same_model_per_gpu": 2}])
def test_prices_by_share_and_two_instances_of_a_model_are_for_others_to_bound(
    five: Problem, policy: dict[str, object]
) -> None:
    changed = replace(five.policy, **policy)  # type: ignore[arg-type]
    assert not exact.applies(tables(replace(five, policy=changed)))
    assert not exact.applies(tables(family("A", 100, 50, 0)))


def test_what_nothing_can_serve_costs_its_price_for_sure(five: Problem) -> None:
    services = {name: replace(service, slo_ms=0.001) for name, service in five.services.items()}
    proof = list(exact.prove(tables(replace(five, services=services)), 100))[-1]
    assert proof.proved and proof.placed is not None and len(proof.placed) == 0
    assert proof.bound == pytest.approx(1000 * sum(max(s.rate_per_second, 1) for s in services.values()))


@pytest.mark.slow
def test_the_small_fleets_are_of_all_sorts() -> None:
    seen: Counter[str] = Counter()

    @settings(few, max_examples=400)  # of 60, one kind may be a single fleet
    @given(fleets())
    def look(problem: Problem) -> None:
        cost = least_cost(problem)
        seen["served" if cost < 1000 else "nothing serves one" if cost < inf else "too much"] += 1
        seen["dedicated"] += any(service.is_dedicated for service in problem.services.values())

    look()
    assert not [kind for kind in ("served", "nothing serves one", "too much", "dedicated") if seen[kind] < 2], seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(300, 10)))
def test_where_energy_has_a_price_nothing_that_is_proved_is_above_a_plan(seed: int) -> None:
    """The exact search counts GPUs alone, and begins at no bound that is paid for energy, too."""
    problem = random_problem(seed)
    policy = replace(problem.policy, energy_price_per_kwh=2.0, pricing="gpu", same_model_per_gpu=1)
    problem = replace(problem, policy=policy, state=None)
    plan = solve(problem, SolveBudget(None, 10))
    assert plan.certificate
    for proof in proofs(tables(problem), 200_000):
        assert proof.bound <= plan.certificate.cost.total * (1 + 1e-9)
