"""Variants of one service are mixed where that costs less, and the mean accuracy of its requests keeps the promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planning.availability import Availability
from solvers.planning.bound import left_out
from solvers.planning.judge import judge
from solvers.planning.judge.measures import mean_accuracy
from solvers.planning.parts import divide_services
from solvers.planning.parts.follow import PlanFollower
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Node,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from solvers.planning.replay import replay_plan
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find

ACCURACIES = {"large": 0.8, "small": 0.74, "tiny": 0.6}
SPEEDS = {"large": 1.0, "small": 3.0, "tiny": 4.0}
SERVICE = "shop/search"
WORK = 8


def world(promise: float, rate: float = 200.0, nodes: int = 4, **fields: object) -> Problem:
    """A GPU carries 50 requests a second of the large variant, and 150 of the small one."""
    curves = {name: {1: ((10, 50.0 / speed), (100, 15.0 / speed))} for name, speed in SPEEDS.items()}
    demand = Demand(pressure=((100, 0.3),), sensitivity=0.2)
    service = Service(SERVICE, "shop", "m", tuple(ACCURACIES), 90.0, 95.0, rate, mean_accuracy=promise)
    return Problem(
        gpu_types={"g": GpuType("g", 16, 30, 300, (1000.0,))},
        nodes={f"n{at}": Node(f"n{at}", "g", (0, 1), 64, 512, 1.0) for at in range(nodes)},
        models={"m": tuple(Variant(name, accuracy) for name, accuracy in ACCURACIES.items())},
        profiles={("m", name, "g"): Profile("m", name, "g", curves[name], {1: 2.0}, demand) for name in ACCURACIES},
        services={SERVICE: replace(service, **fields)},  # type: ignore[arg-type]
        policy=Policy(pricing="gpu"),
    )


def planned(problem: Problem, work: int = WORK) -> Plan:
    plan = find(problem, SolveBudget(None, work), alone=True).plan
    assert judge(problem, plan, keeps=keep).violations == ()
    return plan


def cost(plan: Plan) -> float:
    assert plan.certificate
    return plan.certificate.cost.total


def mean(problem: Problem, plan: Plan) -> float:
    found = mean_accuracy(plan.instances, problem)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("promise", [0.62, 0.7, 0.75, 0.76, 0.77, 0.79, 0.8])
def test_every_plan_keeps_the_promise_and_costs_no_more_than_accurate_variants_alone(promise: float) -> None:
    problem = world(promise)
    enough = tuple(name for name, accuracy in ACCURACIES.items() if accuracy >= promise)
    alone = planned(world(0.0, variants=enough))
    plan = planned(problem)
    assert plan.unserved == ()
    assert mean(problem, plan) >= promise * (1 - 1e-9)
    assert cost(plan) <= cost(alone)
    assert plan.certificate and plan.certificate.bound is not None
    assert plan.certificate.bound <= cost(plan)


@pytest.mark.slow
def test_a_mix_saves_gpus() -> None:
    problem = world(0.76)
    plan = planned(problem)
    assert {line.variant for line in plan.instances} == {"large", "small"}
    assert cost(plan) < cost(planned(world(0.0, variants=("large",))))
    assert "promised mean accuracies" in left_out(tables(problem))


def test_the_judge_refuses_a_plan_below_the_promise_in_words() -> None:
    problem = world(0.76)
    plan = planned(world(0.0, variants=("small",)))
    (broken,) = judge(problem, plan, keeps=keep).violations
    assert broken.rule == "mean_accuracy_kept"
    assert broken.sentence == "its requests have a mean accuracy of 0.74, below meanAccuracy 0.76"


@pytest.mark.slow
def test_what_runs_is_kept_and_new_rates_are_followed_within_the_promise() -> None:
    problem = world(0.76)
    plan = planned(problem)
    again = replace(problem, state=RunningState(running=plan.instances))
    assert planned(again).changes.keep == len(plan.instances)
    replanner = PlanFollower.of(problem, plan)
    assert isinstance(replanner, PlanFollower)
    for rate in (150.0, 230.0, 90.0):
        replanner.change({SERVICE: rate})
        followed, changed = replanner.plan, problem.change_rates({SERVICE: rate})
        assert judge(changed, followed, keeps=keep).violations == ()
        assert mean(changed, followed) >= 0.76 * (1 - 1e-9)
        assert followed.unserved == ()


@pytest.mark.slow
def test_where_gpus_are_few_less_is_served_and_the_promise_kept() -> None:
    problem = world(0.76, rate=600.0, nodes=2)
    plan = planned(problem)
    assert plan.unserved
    assert sum(line.rate_per_second for line in plan.instances) > 285.0
    assert mean(problem, plan) >= 0.76 * (1 - 1e-9)


@pytest.mark.slow
def test_where_accurate_variants_win_too_few_gpus_the_service_is_not_given_up() -> None:
    """Two GPUs carry 53 of the large and 160 of the small one; without the large one nothing may be served."""
    problem = world(0.745, rate=420.0, nodes=1)
    plan = planned(problem)
    assert {line.variant for line in plan.instances} == {"large", "small"}
    assert sum(line.rate_per_second for line in plan.instances) > 160.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{"min_instances": 2}, {"availability": Availability(survive_nodes=1)}], ids=["two", "survives"]
)
def test_with_rules_about_instances_accurate_variants_serve_alone(fields: dict[str, object]) -> None:
    problem = world(0.76, 60.0, 4, **fields)
    plan = planned(problem)
    assert plan.unserved == ()
    assert {line.variant for line in plan.instances} == {"large"}


def test_without_a_promise_nothing_is_divided() -> None:
    assert divide_services(world(0.0)) is None
    assert divide_services(world(0.6)) is None  # any variant keeps it


def test_a_mixed_plan_is_found_again_by_its_steps() -> None:
    problem = world(0.76)
    found = find(problem, SolveBudget(None, WORK), alone=True)
    again = replay_plan(problem, 0, found.work, is_exact=found.is_exact)
    assert _lines(again) == _lines(found.plan)


def _lines(plan: Plan) -> list[Instance]:
    return list(plan.instances)
