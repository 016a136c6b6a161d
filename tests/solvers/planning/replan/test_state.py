"""Plans next to what runs: their own plan is a fixed point, and what became invalid is repaired with few changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Job, JobProfile, Node, Problem, RunningState
from solvers.planning.replan.match import match_running
from solvers.planning.replan.running import add_predictions
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.small_fleets import fleets
from tests.support.soak import SOAK

NOW = SolveBudget(seconds=None, work=0)
quick = settings(max_examples=100 if SOAK else 3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
policies = st.fixed_dictionaries(
    {
        "pricing": st.sampled_from(["gpu", "gpu", "share"]),
        "energy_price_per_kwh": st.sampled_from([0.0, 0.3]),
        "same_model_per_gpu": st.sampled_from([1, 2]),
    }
)


def running(problem: Problem, plan: Plan) -> Problem:
    return replace(problem, state=RunningState(running=plan.instances, jobs=plan.jobs))


def value(problem: Problem, plan: Plan) -> float:
    """Returns what a decision next to a State minimises."""
    assert plan.certificate
    cost = plan.certificate.cost
    return cost.total * problem.policy.horizon_minutes / 60 + cost.churn


@pytest.mark.slow
@quick
@given(fleets(), policies, st.booleans(), st.integers(0, 3))
def test_with_state_equal_to_its_own_plan_all_is_kept(
    problem: Problem, policy: dict[str, object], jobs: bool, more: int
) -> None:
    problem = replace(problem, policy=replace(problem.policy, **policy))  # type: ignore[arg-type]
    if jobs:
        speeds = JobProfile(((10, 1.0), (60, 3.0)), 1.0)
        problem = replace(problem, jobs={"lab/j": Job("lab/j", "lab", "training", 100, {"big": speeds, "old": speeds})})
    budget = SolveBudget(seconds=None, work=more)
    plan = solve(problem, budget)
    again = solve(running(problem, plan), budget)
    assert again.changes.keep == len(plan.instances) == len(again.instances)
    assert sorted(instance.id for instance in again.instances) == sorted(instance.id for instance in plan.instances)
    assert again.certificate and again.certificate.cost.churn == 0


@pytest.mark.slow
@quick
@given(fleets(), st.sampled_from([0.0, 0.05, 5.0]), st.integers(1, 3))
def test_a_better_plan_replaces_the_running_one_exactly_when_it_is_worth_its_moves(
    problem: Problem, move_price: float, work: int
) -> None:
    problem = replace(problem, policy=replace(problem.policy, move_price=move_price))
    plan = solve(problem, NOW)
    beside, better = running(problem, plan), SolveBudget(seconds=None, work=work)
    again = solve(beside, better)
    assert value(problem, again) <= value(problem, plan) * (1 + 1e-9)
    laid = replace(solve(problem, better), certificate=None)
    moved = judge(beside, replace(laid, instances=tuple(match_running(tables(beside), laid.instances))), keeps=keep)
    other = moved.cost.total * problem.policy.horizon_minutes / 60 + moved.cost.churn
    assert value(problem, again) <= other * (1 + 1e-9)
    assert again.certificate
    if again.certificate.cost.churn:
        assert value(problem, again) < value(problem, plan)
    third = solve(running(problem, again), better)
    assert third.changes.keep == len(third.instances) == len(again.instances)


@pytest.mark.slow
@quick
@given(fleets(), st.floats(0.5, 1.5), st.booleans())
def test_what_is_no_longer_right_is_made_right(problem: Problem, factor: float, loses_a_variant: bool) -> None:
    plan = solve(problem, NOW)
    name = min(problem.services)
    changed = problem.change_rates({name: problem.services[name].rate_per_second * factor})
    if loses_a_variant:
        service = changed.services[name]
        changed = replace(
            changed, services={**changed.services, name: replace(service, variants=service.variants[-1:])}
        )
    again = solve(running(changed, plan), NOW)
    verdict = judge(running(changed, plan), replace(again, certificate=None), keeps=keep)
    assert verdict.is_right and not verdict.misstated
    cold = solve(changed, NOW)
    most = sum(problem.nodes[instance.node].price_per_hour * instance.sm_percent / 100 for instance in cold.instances)
    assert value(changed, again) <= value(changed, cold) + problem.policy.move_price * most + 1e-9


@pytest.mark.slow
@quick
@given(fleets())
def test_a_node_that_is_gone_is_made_up_for_elsewhere(problem: Problem) -> None:
    spare = {f"{name}-2": replace(node, name=f"{name}-2") for name, node in problem.nodes.items()}
    plan = solve(problem, NOW)
    gone = min(problem.nodes)
    moved = [replace(instance, node=f"{gone}-2") if instance.node == gone else instance for instance in plan.instances]
    other = replace(problem, nodes={**problem.nodes, **spare})
    smaller: dict[str, Node] = {**other.nodes, f"{gone}-2": replace(spare[f"{gone}-2"], cpu_cores=0.0, gpus=(0,))}
    again = solve(replace(other, nodes=smaller, state=RunningState(running=tuple(moved))), NOW)
    assert not judge(replace(other, nodes=smaller), replace(again, certificate=None), keeps=keep).violations


@pytest.mark.slow
@quick
@given(fleets())
def test_a_plan_laid_over_itself_on_other_gpus_takes_their_place(problem: Problem) -> None:
    plan = solve(problem, NOW)
    nodes = {name: node for name, node in problem.nodes.items() if node.gpu_count == 2}
    swapped = [
        replace(instance, gpu=1 - instance.gpu) if instance.node in nodes else instance for instance in plan.instances
    ]
    other = replace(problem, state=RunningState(running=tuple(swapped)))
    found = match_running(tables(other), plan.instances)
    assert sorted(found, key=lambda instance: instance.id) == sorted(swapped, key=lambda instance: instance.id)


@pytest.mark.parametrize("seed", [40, 47])
def test_what_runs_comes_without_predictions_and_is_explained_all_the_same(seed: int) -> None:
    problem = random_problem(seed)
    bare = tuple(replace(instance, exec_ms=0.0, latency_ms=0.0) for instance in solve(problem, NOW).instances)
    risen = problem.change_rates({name: 2 * service.rate_per_second for name, service in problem.services.items()})
    plan = solve(
        replace(risen, state=RunningState(now=problem.state.now if problem.state else None, running=bare)), NOW
    )
    assert plan.unserved and all(left.reason for left in plan.unserved)
    assert plan.instances and all(instance.exec_ms > 0 for instance in plan.instances)


def test_predictions_of_what_runs_are_those_of_its_plan() -> None:
    problem = random_problem(3)
    plan = solve(problem, NOW)
    bare = [replace(instance, exec_ms=0.0, latency_ms=0.0) for instance in plan.instances]
    for line, known in zip(add_predictions(problem, bare), plan.instances, strict=True):
        assert (line.exec_ms, line.latency_ms) == pytest.approx((known.exec_ms, known.latency_ms))
