"""Every planner keeps the watts that an operator allows each GPU, and no bound is above a plan that keeps them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from solvers.crosscheck import TOLERANCE_SHARE, cross_check
from solvers.planners.ask import DRAFTERS, find_plan
from solvers.planning.batches.find import find_batches, make_batches
from solvers.planning.judge import judge
from solvers.planning.kept_bound import what_changed
from solvers.planning.machines import Node, WrongProblem
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState, Variant
from solvers.planning.replan.replanner import Replanner
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.crosscheck.tiny import tiny_problem
from tests.solvers.planning.capped import at_cap, with_caps
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.small_world import BIG, profile, service
from tests.solvers.planning.without_bound import plan_without_bound
from tests.support.soak import scaled

FEW_STEPS = 5
FEW = SolveBudget(seconds=None, work=FEW_STEPS)
ENOUGH = SolveBudget(seconds=None, work=50)
SEEDS = range(scaled(200, 7))


@pytest.mark.parametrize("planner", sorted(DRAFTERS))
def test_no_planner_breaks_a_rule_under_caps(planner: str) -> None:
    for seed in range(scaled(120, 12)):
        problem = without_budget(with_caps(random_problem(seed), seed))
        plan = find_plan(problem, planner, FEW, alone=True, bounds=False).plan
        assert judge(problem, plan).is_right, seed


def without_budget(problem: Problem) -> Problem:
    """Returns the problem without powerBudgetW, which not every planner plans for."""
    return replace(problem, policy=replace(problem.policy, power_budget_w=None))


@pytest.mark.slow
def test_the_joint_planner_keeps_caps_and_its_bound_is_at_most_its_cost() -> None:
    for seed in SEEDS:
        problem = with_caps(random_problem(seed), seed)
        plan = find(problem, FEW, alone=True).plan
        assert judge(problem, plan).is_right, seed
        assert plan.certificate
        assert "a bug in the planner" not in plan.certificate.method, seed
        bound = plan.certificate.bound
        assert bound is None or bound <= plan.certificate.cost.total, seed


@pytest.mark.slow
def test_the_exact_model_under_caps_finds_nothing_below_the_bound_and_no_plan_is_below_its_own() -> None:
    for seed in range(scaled(200, 7)):
        problem = with_caps(tiny_problem(seed), seed)
        found = cross_check(problem, 5.0)
        plan = find(problem, SolveBudget(None, 40, seed), alone=True).plan
        assert plan.certificate
        assert not found.is_above(plan.certificate.cost.total), seed
        if found.plan is not None:
            assert judge(problem, found.plan, simulate=False).is_right, seed
        if plan.certificate.bound is not None:
            assert plan.certificate.bound <= found.cost * (1 + TOLERANCE_SHARE) + TOLERANCE_SHARE, seed


@cache
def running(seed: int) -> Problem:
    """Returns a problem that runs a plan made without caps."""
    problem = without_budget(replace(random_problem(seed), state=None))
    before = plan_without_bound(problem, FEW_STEPS)
    return replace(problem, state=RunningState(None, before.instances, before.jobs))


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["joint", *sorted(DRAFTERS)])
def test_what_runs_over_a_cap_that_was_lowered_does_not_stay_as_it_is(planner: str) -> None:
    for seed in range(scaled(60, 6)):
        lowered = with_caps(running(seed), seed)
        if any(not job.is_preemptible for job in lowered.jobs.values()):
            continue  # such a job stays whatever it draws
        if planner == "joint":
            plan = find(lowered, FEW, alone=True).plan
        else:
            plan = find_plan(lowered, planner, FEW, alone=True, bounds=False).plan
        assert judge(lowered, plan).is_right, seed


@pytest.mark.slow
def test_changed_rates_and_batches_of_moves_keep_the_cap_of_each_gpu() -> None:
    made = 0
    for seed in range(scaled(100, 10)):
        problem = without_budget(with_caps(replace(random_problem(seed), state=None, jobs={}), seed))
        plan = plan_without_bound(problem, FEW_STEPS)
        if not plan.instances:
            continue
        replanner = Replanner.of(problem, plan)
        replanner.change({name: 1.3 * service.rate_per_second for name, service in problem.services.items()})
        assert replanner.judged_plan.verdict().violations == (), seed
        beside = replace(problem, state=RunningState(None, plan.instances))
        for batch in find_batches(beside, plan, tries=4, seed=seed)[:2]:
            services = make_batches(beside, plan, batch.groups)
            assert services
            moved = Plan(tuple(services.instances), (), tuple(services.unserved))
            assert judge(beside, moved, keeps=keep).is_right, seed
            made += 1
    assert made


def test_gpus_of_one_node_with_different_caps_are_in_different_pools() -> None:
    problem = random_problem(3)
    node = next(node for node in problem.nodes.values() if node.gpu_count > 1)
    kind = problem.gpu_types[node.gpu_type]
    caps = tuple(kind.max_w - 10 * (index + 1) for index in range(node.gpus[-1] + 1))
    by_gpu = replace(problem, nodes={node.name: replace(node, caps_w=caps, pricing="gpu")}, state=None)
    assert [len(pool.gpus) for pool in tables(by_gpu).pools] == [1] * node.gpu_count
    rented = replace(node, caps_w=caps, pricing="node", purchase="onDemand")
    whole = tables(replace(problem, nodes={node.name: rented}, state=None))
    assert [len(pool.gpus) for pool in whole.pools] == [node.gpu_count]
    assert whole.site_types[0].max_w == min(caps[index] for index in node.gpus)


@pytest.mark.slow
def test_caps_equal_to_the_types_own_limit_change_nothing() -> None:
    for seed in range(8):
        problem = replace(random_problem(seed), state=None)
        nodes = {
            name: replace(node, caps_w=(problem.gpu_types[node.gpu_type].max_w,) * (node.gpus[-1] + 1))
            for name, node in problem.nodes.items()
        }
        free, same = (find(each, FEW, alone=True).plan for each in (problem, replace(problem, nodes=nodes)))
        assert free.instances == same.instances
        assert [entry.reason for entry in free.unserved] == [entry.reason for entry in same.unserved]
        assert free.certificate
        assert same.certificate
        assert free.certificate.bound == same.certificate.bound


def test_a_bound_is_not_kept_where_a_cap_changed() -> None:
    problem = random_problem(3)
    assert what_changed(problem, at_cap(problem, 119.0)) == "the fleet"


@pytest.mark.parametrize(("caps", "words"), [((300.0,), "1 caps of watts"), ((300.0, 0.0), "watts over 0")])
def test_caps_that_do_not_fit_their_gpus_are_refused(caps: tuple[float, ...], words: str) -> None:
    with pytest.raises(WrongProblem, match=words):
        Node("n", "big", (0, 1), 16, 64, 2.0, caps_w=caps)


def pair(cap_w: float | None, *clocks_mhz: float) -> Problem:
    """Two services and one GPU that may draw 300 W; with a cap, both fit at a lower clock or one at the highest."""
    profiles = [profile(model, "v", "big") for model in ("m", "k")]
    return Problem(
        gpu_types={"big": replace(BIG, clocks_mhz=clocks_mhz)},
        nodes={"n": Node("n", "big", (0,), 16, 64, 2.0, caps_w=() if cap_w is None else (cap_w,))},
        models={model: (Variant("v", 0.8),) for model in ("m", "k")},
        profiles={each.key: each for each in profiles},
        services={
            f"shop/{model}": service(f"shop/{model}", model, rate_per_second=20, priority=priority)
            for model, priority in (("m", 200), ("k", 100))
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["joint", "morak"])
def test_a_cap_lowers_the_clock(planner: str) -> None:
    free, capped = (find_any(pair(cap_w, 600, 1200), planner) for cap_w in (None, 75.0))
    assert not free.unserved
    assert not capped.unserved
    assert {line.clock_mhz for line in free.instances} == ({1200} if planner == "joint" else {600})
    assert {line.clock_mhz for line in capped.instances} == {600}


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["joint", "morak"])
def test_a_cap_leaves_room_for_fewer_neighbours(planner: str) -> None:
    free, capped = (find_any(pair(cap_w, 1200), planner) for cap_w in (None, 75.0))
    assert {line.service for line in free.instances} == {"shop/m", "shop/k"}
    assert {line.service for line in capped.instances} == {"shop/m"}  # of the higher priority
    assert [entry.service for entry in capped.unserved] == ["shop/k"]


def find_any(problem: Problem, planner: str) -> Plan:
    plan = (
        find_plan(problem, planner, FEW, alone=True).plan
        if planner != "joint"
        else find(problem, ENOUGH, alone=True).plan
    )
    assert judge(problem, plan).is_right
    assert plan.certificate
    assert plan.certificate.bound is None or plan.certificate.bound <= plan.certificate.cost.total
    return plan


@pytest.mark.slow
def test_a_reason_names_the_cap_that_leaves_no_watts_beside_others() -> None:
    (entry,) = find(pair(75.0, 1200), ENOUGH, alone=True).plan.unserved
    assert "capW of the nodes leaves no watts for it" in entry.reason


@pytest.mark.slow
def test_a_reason_names_a_cap_that_no_shape_keeps_and_the_least_that_would_do() -> None:
    unserved = find(pair(65.0, 1200), FEW, alone=True).plan.unserved
    assert {entry.service for entry in unserved} == {"shop/m", "shop/k"}
    for entry in unserved:
        assert entry.reason == (
            "capW of the nodes of big leaves every GPU too few watts for its SLO of 200 ms at percentile 98; "
            "a capW of 70 would be enough"
        )
    for cap_w, is_enough in ((69.0, False), (70.0, True)):
        assert bool(find(pair(cap_w, 1200), FEW, alone=True).plan.instances) == is_enough
