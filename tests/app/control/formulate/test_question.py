"""A question knows what the judge says of the plan in force and of plans that differ little from it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.control.decide.assigning import assign_plan
from app.control.domain.snapshot import ExpectedLoad
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Demand
from solvers.planning.search.promise import keep
from tests.app.control.decide.test_choosing import SERVICES, plan, world
from tests.solvers.planning.judge.test_judged_plan import plans, policies, with_state
from tests.support.soak import scaled

WORLD = world(SERVICES)
RUNNING = replace(WORLD, in_force=assign_plan(WORLD, formulate(WORLD), plan(Random(1), SERVICES, whole=True)))


def test_a_large_lack_calls_for_a_plan_before_anything_is_judged() -> None:
    risen = {**RUNNING.expected, "shop/a": ExpectedLoad(2 * SERVICES["shop/a"])}
    question = formulate(replace(RUNNING, expected=risen))
    assert question.falls_far_short
    assert "verdict" not in vars(question)


def test_a_plan_that_serves_all_falls_short_only_where_it_breaks_a_rule() -> None:
    assert not formulate(RUNNING).falls_far_short
    slow = [
        replace(item, spec={**item.spec, "slo": {"latencyMs": 1, "percentile": 95}}) if item.name == "a" else item
        for item in RUNNING.declared
    ]
    question = formulate(replace(RUNNING, declared=tuple(slow)))
    assert not question.plan_in_force.unserved
    assert question.falls_far_short


@settings(max_examples=scaled(150, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policies, plans, st.lists(plans, min_size=1, max_size=3))
def test_other_plans_get_the_verdict_that_the_judge_gives_from_scratch(
    policy: dict[str, Any], running: Plan, others: list[Plan]
) -> None:
    question = Question(with_state(policy, running.instances, running.jobs))
    problem = question.problem
    now = judge(problem, question.plan_in_force, simulate=False, keeps=keep)
    assert question.verdict.violations == now.violations
    assert question.verdict.cost == now.cost
    kept = question.plan_in_force.instances[1:]
    near = [replace(other, instances=(*kept, *other.instances[:1])) for other in others]
    for other in [*others, *near, question.plan_in_force]:
        verdict, whole = question.verdict_on(other), judge(problem, other, simulate=False, keeps=keep)
        assert (verdict.violations, verdict.cost, verdict.changes) == (whole.violations, whole.cost, whole.changes)


def test_a_question_changes_with_the_pressure_on_bandwidth() -> None:
    problem = formulate(RUNNING).problem

    def fingerprint(bandwidth: float) -> bytes:
        demand = Demand(pressure=((100, complex(0.4, bandwidth)),), sensitivity=0.2 + 0.1j)
        profiles = {key: replace(profile, demand=demand) for key, profile in problem.profiles.items()}
        return Question(replace(problem, profiles=profiles)).fingerprint

    assert fingerprint(0.3) == fingerprint(0.3) != fingerprint(0.4)
