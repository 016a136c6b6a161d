"""Neighbours that press on different things share GPUs that one number for both would keep apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planners.ask import find_plan
from solvers.planners.names import BASELINES, PLANNERS
from solvers.planning.judge import judge
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    Problem,
    Profile,
    Service,
    Variant,
)
from solvers.planning.solve import SolveBudget, find

WORK = SolveBudget(seconds=None, work=200, seed=0)
COMPUTE, BANDWIDTH = 0.9 + 0.05j, 0.05 + 0.9j


def demand(mostly: complex) -> Demand:
    """Returns what presses on one of both, and feels it."""
    return Demand(pressure=((10, mostly), (100, mostly)), sensitivity=mostly)


def fleet(*kinds: complex, gpus: int = 4) -> Problem:
    """Returns a service of each kind that half a GPU serves if next to nothing slows it, and not beside one like it."""
    models = [f"m{number}" for number in range(len(kinds))]
    curve = ((25, 40.0), (45, 20.0), (75, 12.0), (100, 10.0))
    return Problem(
        gpu_types={"a": GpuType("a", 16, 10, 300, (1000.0,))},
        nodes={"n": Node("n", "a", tuple(range(gpus)), 64, 512, 1.0)},
        models={model: (Variant("v", 1.0),) for model in models},
        profiles={
            (model, "v", "a"): Profile(model, "v", "a", {1: curve}, {1: 2.0}, demand(kind))
            for model, kind in zip(models, kinds, strict=True)
        },
        services={f"s/{model}": Service(f"s/{model}", "s", model, ("v",), 50.0, 98.0, 10.0) for model in models},
    )


def with_one_number(problem: Problem) -> Problem:
    """Returns it with what planners see that know one pressure: the sum of both, felt as the one that slows most."""
    profiles = {
        key: replace(
            profile,
            demand=replace(
                profile.demand, pressure=profile.demand.whole_pressure, sensitivity=profile.demand.most_sensitivity
            ),
        )
        for key, profile in problem.profiles.items()
    }
    return replace(problem, profiles=profiles)


def plan_of(problem: Problem) -> Plan:
    plan = find(problem, WORK, alone=True).plan
    assert not judge(problem, plan).violations
    assert not plan.unserved
    return plan


def count_gpus(plan: Plan) -> int:
    return len({line.place for line in plan.instances})


def test_those_that_press_on_different_things_share_a_gpu() -> None:
    different, alike = fleet(COMPUTE, BANDWIDTH), fleet(COMPUTE, COMPUTE)
    assert count_gpus(plan_of(different)) == 1
    assert count_gpus(plan_of(alike)) == 2
    assert count_gpus(plan_of(with_one_number(different))) == 2


def test_pairs_are_found_among_many() -> None:
    problem = fleet(COMPUTE, COMPUTE, BANDWIDTH, BANDWIDTH)
    plan = plan_of(problem)
    assert count_gpus(plan) == 2
    assert plan.certificate is not None and plan.certificate.bound is not None
    assert plan.certificate.bound <= plan.certificate.cost.resource


def test_what_slows_by_hand() -> None:
    """20 ms alone at 45 %: beside another kind 20 x (1 + .9 x .05 + .05 x .9), beside its own 20 x (1 + .9² + .05²)."""
    for second, exec_ms in ((BANDWIDTH, 21.8), (COMPUTE, 36.25)):
        problem = fleet(COMPUTE, second)
        lines = [Instance(f"i{n}", f"s/m{n}", "n", 0, "v", 1, 0.0, 45, 2.0, 1000.0, 1.0) for n in range(2)]
        (gpu,) = gpus_with(problem, lines, ()).values()
        slow_down(gpu, problem.policy)
        assert [line.exec_ms for line in gpu.residents] == [pytest.approx(exec_ms)] * 2
        slow_down(gpu, replace(problem.policy, pricing="share", share_pressure=0.5))  # strangers on the last tenth
        assert gpu.residents[0].exec_ms == pytest.approx(exec_ms * (1 + 0.9 * 0.5 * 0.1))


def test_a_training_goes_to_the_service_that_bears_it() -> None:
    problem = fleet(COMPUTE, BANDWIDTH, gpus=2)
    training = JobProfile(((10, 1.0), (25, 2.0)), 2.0, Demand(pressure=((100, 0.9j),)))
    apart = {name: replace(one, rate_per_second=30.0) for name, one in problem.services.items()}
    problem = replace(
        problem, services=apart, jobs={"s/j": Job("s/j", "s", "training", 1000.0, {"a": training}, None, 0.001)}
    )
    plan = plan_of(problem)
    where = {line.service: line.place for line in plan.instances}
    assert [job.place for job in plan.jobs] == [where["s/m0"]]


@pytest.mark.parametrize("planner", [*PLANNERS[1:], *BASELINES])
def test_planners_that_know_one_pressure_keep_every_promise(planner: str) -> None:
    problem = fleet(COMPUTE, BANDWIDTH, 0.5 + 0.5j)
    plan = find_plan(problem, planner, WORK, alone=True, bounds=False).plan
    assert not judge(problem, plan).violations
    assert plan.instances
