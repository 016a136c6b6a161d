"""A lack that is large enough says without the judge that another plan is due."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from app.control.decide.assigning import desired_of
from app.control.domain.snapshot import ExpectedLoad
from app.control.formulate.formulate import formulate
from tests.app.control.decide.test_choosing import SERVICES, plan, world

WORLD = world(SERVICES)
RUNNING = replace(WORLD, in_force=desired_of(WORLD, formulate(WORLD), plan(Random(1), SERVICES, whole=True)))


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
