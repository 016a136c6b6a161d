"""Plans for bursty services: the judge's own simulation grants them, and refuses those made for Poisson arrivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.families import family, multiply_gpus
from solvers.latency import burstiness_of, variation_of
from solvers.planning.judge import judge
from solvers.planning.judge.attainment import find_attained
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve

BUDGET = SolveBudget(seconds=None, work=10)


def bursty(problem: Problem, burstiness: float) -> Problem:
    """The same services with this dispersion at their gateways."""
    services = {
        name: replace(service, variation=variation_of(burstiness, service.rate_per_second, service.slo_ms))
        for name, service in problem.services.items()
    }
    return replace(problem, services=services)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_plan_for_bursts_is_right_and_one_for_poisson_arrivals_is_not(seed: int) -> None:
    plain = multiply_gpus(family("A", 8, 4, seed, 0.5), 3)
    known = bursty(plain, 3.0)
    poisson, aware = solve(plain, BUDGET), solve(known, BUDGET)
    assert judge(known, aware).is_right
    assert judge(plain, poisson).is_right
    assert {violation.rule for violation in judge(known, poisson).violations} == {"slo_holds"}
    assert poisson.certificate and aware.certificate
    assert aware.certificate.cost.total > poisson.certificate.cost.total
    assert aware.certificate.bound is None or aware.certificate.bound <= aware.certificate.cost.total * (1 + 1e-9)


def test_an_instance_sees_its_share_of_the_dispersion() -> None:
    variation = variation_of(9.0, 1000.0, 50.0)
    assert burstiness_of(variation, 250.0, 50.0) == pytest.approx(1 + 0.25 * 8.0)


def test_the_judge_grants_less_the_more_arrivals_vary() -> None:
    shares = [find_attained(8, 10.0, 0.0, 500.0, 40.0, 98.0, 3, variation)[0] for variation in (0.0, 0.1, 0.5, 2.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.99 > shares[2]
