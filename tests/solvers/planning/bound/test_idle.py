"""Idle SMs in the bound where shares are paid: their slowdown counts exactly, and only while no job may take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planning import bound
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    Service,
    Variant,
    gpu_indexes,
)

from solvers.planning.problem import Demand  # isort: skip
from solvers.planning.search.tables import tables

GPUS = 6
LEAST, MOST = 20, 60
COPIES = 3


def exec_ms(sm: int) -> float:
    return 100.0 - 3.0 * (sm - LEAST) if sm < 40 else 40.0 - 0.3 * (sm - 40)


def problem(sensitivity: float, share_pressure: float, own: float = 0.0) -> Problem:
    """Returns one service, whose copies are alone on their GPUs, where only idle SMs slow them."""
    curve = tuple((sm, exec_ms(sm)) for sm in (LEAST, 40, MOST))
    demand = Demand(pressure=((100, own),), sensitivity=sensitivity)
    return Problem(
        gpu_types={"a": GpuType("a", 16, 0, 500, (1000.0,))},
        nodes={"n": Node("n", "a", gpu_indexes(GPUS), 64, 512, 1.0)},
        models={"m": (Variant("v", 1.0),)},
        profiles={("m", "v", "a"): Profile("m", "v", "a", {8: curve}, {8: 0.1}, demand)},
        services={"s/m": Service("s/m", "s", "m", ("v",), 1e5, 90.0, 1.0)},
        policy=Policy(pricing="share", share_pressure=share_pressure),
    )


def rate_at(asked: Problem, sm: int, idle_sm: int) -> float:
    """Returns what a copy carries at the policy's utilization beside so many idle SMs."""
    feels = asked.profiles["m", "v", "a"].demand.most_sensitivity
    slow = 1 + feels * asked.policy.share_pressure * idle_sm / 100
    return asked.policy.utilization * 8 * 1000 / (exec_ms(sm) * slow)


def cheapest_sm(asked: Problem, idle: float = 1.0) -> int:
    """Returns the SM% of the least share for a request a second; no plan of such copies can take less."""
    return min(range(LEAST, MOST + 1), key=lambda sm: sm / rate_at(asked, sm, round(idle * (100 - sm))))


def copies(asked: Problem, sm: int, rate: float) -> tuple[Instance, ...]:
    return tuple(Instance(f"s/m/{gpu}", "s/m", "n", gpu, "v", 8, 0.0, sm, 0.1, 1000.0, rate) for gpu in range(COPIES))


def bound_of(asked: Problem) -> float:
    return list(bound.rounds(tables(asked), 200_000))[-1].bound


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("share_pressure", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("own", [0.0, 0.4])
def test_it_is_the_cost_of_copies_that_are_as_cheap_as_can_be(
    sensitivity: float, share_pressure: float, own: float
) -> None:
    asked = problem(sensitivity, share_pressure, own)
    sm = cheapest_sm(asked)
    rate = rate_at(asked, sm, 100 - sm) * (1 - 1e-9)
    asked = asked.change_rates({"s/m": COPIES * rate})
    verdict = judge(asked, Plan(copies(asked, sm, rate)))
    assert verdict.violations == ()
    cost = COPIES * sm / 100
    assert verdict.cost.total == pytest.approx(cost)
    found = bound_of(asked)
    assert found <= cost * (1 + 1e-9)
    assert own > 0 or found >= 0.998 * cost


@pytest.mark.slow
def test_where_jobs_may_take_idle_sms_they_slow_nothing() -> None:
    """Jobs without pressure on all SMs that are left: copies are as fast as on a full GPU."""
    asked = problem(1.0, 1.0)
    sm = cheapest_sm(asked, idle=0.0)
    profile = {"a": JobProfile(((10, 1.0), (100, 2.0)), 0.1)}
    job = Job("j/0", "j", "training", 1e6, profile, max_price_per_hour=9.0)
    jobs = {f"j/{gpu}": replace(job, name=f"j/{gpu}") for gpu in range(COPIES)}
    rate = rate_at(asked, sm, 0) * (1 - 1e-9)
    asked = replace(asked, jobs=jobs).change_rates({"s/m": COPIES * rate})
    placed = tuple(PlacedJob(f"j/{gpu}", "n", gpu, 100 - sm, 0.1, 1.0) for gpu in range(COPIES))
    verdict = judge(asked, Plan(copies(asked, sm, rate), placed))
    assert verdict.violations == ()
    assert bound_of(asked) <= verdict.cost.total * (1 + 1e-9)
    assert bound_of(replace(asked, jobs={})) > verdict.cost.total
