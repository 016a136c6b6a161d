"""Twenty changes one after the other end near what a cold plan costs, or the outcome says that a full plan is due."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.families import family, times
from benchmarks.replanning import new_rates
from solvers.planning.replan import Replanner
from solvers.planning.solve import Budget, solve
from tests.support.soak import SOAK

ROUNDS = 20
MOST_DRIFT = 0.02
# GPUs, services, seed, times the fleet; the load of a family is 0.8, and a large service that grows may not find room
SIZES = [(40, 20, 1, 1), (40, 20, 6, 1), (40, 20, 3, 2), (200, 60, 0, 2)]
if SOAK:
    SIZES += [(1000, 300, seed, 1) for seed in range(3)] + [(1000, 300, 0, 2)]


@pytest.mark.parametrize(("gpus", "services", "seed", "factor"), SIZES)
def test_after_twenty_changes_it_costs_what_a_cold_plan_does_or_a_full_plan_is_due(
    gpus: int, services: int, seed: int, factor: int
) -> None:
    problem = times(family("A", gpus, services, seed), factor)
    base = solve(problem, Budget(seconds=None, work=50 if SOAK else 2))
    assert base.certificate
    replanner, rng = Replanner.of(problem, base), np.random.default_rng(seed)
    for _ in range(ROUNDS):
        done = replanner.change(new_rates(problem, 0.05, rng))
        assert done.untouched_moved == 0 and not done.violations
    cold = solve(replanner.problem, Budget(seconds=None, work=base.certificate.work))
    assert cold.certificate
    drift = done.cost.total / cold.certificate.cost.total - 1
    assert drift <= MOST_DRIFT or done.needs_full_plan, f"{drift:.1%} above a cold plan, and nothing said of it"


def test_what_stays_unserved_is_said_at_every_change() -> None:
    problem = family("A", 8, 4, 0)
    large, small = (
        sorted(problem.services, key=lambda name: -problem.services[name].rate_per_second)[k] for k in (0, 1)
    )
    replanner = Replanner.of(problem, solve(problem, Budget(seconds=None, work=0)))
    replanner.change({large: 1e9})
    done = replanner.change({small: problem.services[small].rate_per_second * 0.9})
    assert done.cost.unserved
    assert any(large in reason for reason in done.reasons)
