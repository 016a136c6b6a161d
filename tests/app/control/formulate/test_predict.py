"""Predictions for a plan's lines agree with the judge's own reading."""

from __future__ import annotations

from dataclasses import replace

from app.control.formulate.predict import predict_instances
from solvers.planning.judge import JudgedPlan, judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Demand, GpuType, Instance, Node, Problem, Profile, Service, Variant
from solvers.planning.search.promise import keep


def problem() -> Problem:
    """Two services that slow each other down, on one GPU."""
    demand = Demand(pressure=((100, 0.5),), sensitivity=0.4)
    return Problem(
        gpu_types={"big": GpuType("big", 16, 40, 300, (1200.0,))},
        nodes={"n1": Node("n1", "big", (0,), 64, 512, 2.0)},
        models={"m": (Variant("v", 0.8),)},
        profiles={("m", "v", "big"): Profile("m", "v", "big", {2: ((20, 20.0), (80, 8.0))}, {2: 1.0}, demand)},
        services={f"t/{name}": Service(f"t/{name}", "t", "m", ("v",), 200.0, 95.0, 20.0) for name in "ab"},
    )


def line(service: str) -> Instance:
    """As it is assigned to a node, without predictions."""
    return Instance(f"{service}1", f"t/{service}", "n1", 0, "v", 2, 20.0, 40, 1.0, 1200.0, 20.0)


def test_lines_that_run_get_predictions_that_the_judge_finds_true() -> None:
    plan = Plan((line("a"), line("b")))
    predicted = predict_instances(problem(), JudgedPlan(problem(), plan, keep).residents)
    lines = tuple(predicted[id(instance)] for instance in plan.instances)
    assert all(instance.latency_ms > instance.exec_ms > 16.0 for instance in lines), (
        "16 ms alone, and each has a neighbour"
    )
    assert judge(problem(), replace(plan, instances=lines), simulate=False).misstated == ()


def test_predictions_that_are_true_stay_as_they_are() -> None:
    plan = Plan((line("a"), line("b")))
    once = predict_instances(problem(), JudgedPlan(problem(), plan, keep).residents)
    repeated = Plan(tuple(once[id(instance)] for instance in plan.instances))
    twice = predict_instances(problem(), JudgedPlan(problem(), repeated, keep).residents)
    assert all(twice[id(instance)] is instance for instance in repeated.instances)
