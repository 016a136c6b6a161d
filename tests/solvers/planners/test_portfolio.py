"""Whatever published planners find, the joint planner's plan of the same problem costs no more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from solvers.planners import portfolio
from solvers.planners.portfolio import USUAL_MS, ask_others
from solvers.planning.drafting.drafts import prepare
from solvers.planning.judge import judge
from solvers.planning.plan import OtherPlan, find_served_share
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft, RivalPlan
from solvers.planning.problem import Knowledge, Problem, RunningState
from solvers.planning.replay import replay_plan
from solvers.planning.search.promise import keep
from solvers.planning.search.seating import seat_instances
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

BUDGET = SolveBudget(seconds=None, work=30)
SHORT_FACTOR = 6.0  # of rates: most of the random fleets cannot serve them


def change_rates(problem: Problem, factor: float) -> Problem:
    services = problem.services.items()
    return replace(
        problem,
        services={
            name: replace(service, rate_per_second=service.rate_per_second * factor) for name, service in services
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, SHORT_FACTOR])
@pytest.mark.parametrize("seed", range(scaled(12, 4)))
def test_no_plan_costs_more_than_that_of_any_planner(seed: int, factor: float) -> None:
    problem = change_rates(random_problem(seed), factor)
    plan = find(problem, BUDGET, alone=True, others=ask_others).plan
    certificate = plan.certificate
    assert certificate
    assert judge(problem, plan, keeps=keep).is_right
    # Where all that runs is served no planner is asked: hardly any is ahead.
    rests = problem.state is not None and bool(problem.state.running) and not plan.unserved
    assert {other.planner for other in certificate.others} == (set() if rests else set(USUAL_MS))
    value = certificate.cost.value_with_jobs(problem.policy)
    for other in certificate.others:
        assert (other.cost is None) == bool(other.refused)
        assert other.cost is None or value <= other.cost.value_with_jobs(problem.policy) * (1 + 1e-6) + 1e-6
        assert -1e-6 <= other.served_share <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(8, 3)))
def test_no_plan_beside_what_runs_costs_more_than_that_of_any_planner_that_was_asked(seed: int) -> None:
    problem = random_problem(seed)
    running = find(problem, BUDGET, alone=True).plan
    moved = replace(change_rates(problem, 1.5), state=RunningState(running=running.instances, jobs=running.jobs))
    found = find(moved, BUDGET, alone=True, others=ask_others)
    certificate = found.plan.certificate
    assert certificate
    assert bool(certificate.others) == bool(found.plan.unserved)  # where all is served, none is asked
    values = [other.cost.value_with_jobs(moved.policy) for other in certificate.others if other.cost]
    assert not values or certificate.cost.value_with_jobs(moved.policy) <= min(values) * (1 + 1e-6) + 1e-6
    again = replay_plan(moved, BUDGET.seed, found.work, is_exact=found.is_exact, others=ask_others)
    assert again.instances == found.plan.instances


def knowing(longer: int, problem: Problem, *, quick: bool, is_quick: bool = True) -> list[RivalPlan]:
    """Stands for a planner that is ahead, and is quick or not: the joint one with much more work."""
    if quick is not is_quick:
        return []
    plan = find(problem, SolveBudget(None, longer), alone=True).plan
    assert plan.certificate
    return [RivalPlan(OtherPlan("ahead", plan.certificate.cost, find_served_share(problem, plan.unserved)), plan)]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_quick"), [(6, True), (28, False)])
def test_a_search_begins_at_the_plan_of_a_planner_that_is_ahead_and_a_replay_finds_it_again(
    seed: int, is_quick: bool
) -> None:
    problem = change_rates(random_problem(seed), SHORT_FACTOR)
    others = partial(knowing, 200, is_quick=is_quick)
    ahead = others(problem, quick=is_quick)[0].about.cost
    found = find(problem, BUDGET if is_quick else SolveBudget(None, 100), alone=True, others=others)
    assert found.plan.certificate
    assert [other.planner for other in found.plan.certificate.others] == ["ahead"]
    assert ahead
    assert found.plan.certificate.cost.total <= ahead.total * (1 + 1e-6)
    again = replay_plan(problem, BUDGET.seed, found.work, is_exact=found.is_exact, others=others)
    assert again.instances == found.plan.instances


def refuse(problem: Problem, *, quick: bool) -> list[RivalPlan]:
    """Stands for a planner whose plan breaks a rule."""
    return [RivalPlan(OtherPlan("refused", None, 0.0, "it breaks a rule"))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [34, 6])
def test_asking_others_takes_no_step_from_the_search(seed: int) -> None:
    """Something runs in the first problem, where the search begins at nothing as well."""
    problem = change_rates(random_problem(seed), SHORT_FACTOR)
    found = {work: find(problem, SolveBudget(None, work), alone=True).plan.instances for work in range(6, 23)}
    better = [work for work in range(7, 23) if found[work] != found[work - 1]]  # steps that find another draft
    assert better
    for work in better:
        asked = find(problem, SolveBudget(None, work), alone=True, others=refuse).plan
        assert asked.instances == found[work], work


def test_a_planner_that_fails_is_named_and_costs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(portfolio, "drafter_of", lambda planner: fail)
    assert {other.about.refused for other in ask_others(random_problem(0), quick=True)} == {
        f"{planner} failed: ZeroDivisionError: by zero" for planner in USUAL_MS
    }


def test_each_planner_is_asked_once_and_those_that_would_take_too_long_never() -> None:
    assert set(portfolio.list_planners(12, 16, quick=True)) == set(USUAL_MS)
    assert portfolio.list_planners(12, 16, quick=False) == []
    quick, slower = (set(portfolio.list_planners(50, 100, quick=quick)) for quick in (True, False))
    assert quick and slower and not quick & slower and quick | slower < set(USUAL_MS)
    assert portfolio.list_planners(50, 200_000, quick=False) == []


def test_a_seated_plan_serves_no_less_than_it_claims() -> None:
    problem = random_problem(3)
    plan = find(problem, SolveBudget(None, 10), alone=True).plan
    t = tables(problem)
    shop = prepare(t)
    seat_instances(shop, plan.instances)
    for number, name in enumerate(t.services):
        claimed = sum(line.rate_per_second for line in plan.instances if line.service == name)
        assert shop.board.cover[number] >= claimed * (1 - 1e-6)
