"""What is added beside language models that carry nothing any more, or whose new shares the judge refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.hetsev.fleet import FleetDelta
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem, Service, Variant
from tests.solvers.planning.wide.wide_fleets import SMALL, TOKENS, fleet, photos, summaries, wide

pytestmark = pytest.mark.slow

NAME, PHOTOS = "shop/summaries", 700.0
ONE_GPU = wide(NAME, gpus=(4,), rate_per_second=3.0)
TWO_GPUS = wide(NAME, gpus=(6, 7), rate_per_second=3.0)


def promised(tpot_ms: float, rate: float = 6.0, least: int = 1) -> Service:
    tokens = replace(TOKENS, promise=replace(TOKENS.promise, tpot_ms=tpot_ms))
    return summaries(rate, tokens=tokens, min_instances=least)


def add(problem: Problem) -> Plan:
    """Returns the plan with what is missing, once the judge finds nothing that the running plan does not break."""
    delta = FleetDelta.of(problem)
    plan, verdict = delta.add()
    assert {(found.where, found.rule) for found in verdict.violations} <= delta.known
    assert served(plan, "shop/photos") == pytest.approx(PHOTOS)
    assert {line.id for line in plan.instances} >= {ONE_GPU.id, TWO_GPUS.id}
    return plan


def served(plan: Plan, name: str) -> float:
    return sum(line.rate_per_second for line in plan.instances if line.service == name)


def rates(plan: Plan) -> list[float]:
    return [line.rate_per_second for line in plan.instances if line.service == NAME]


def test_what_an_instance_carries_no_more_the_others_carry() -> None:
    plan = add(fleet(promised(12.0), photos(PHOTOS), running=(ONE_GPU, TWO_GPUS)))
    assert rates(plan) == pytest.approx([0.003, 5.997])
    assert not plan.unserved


def test_where_no_instance_carries_anything_the_plan_says_so() -> None:
    problem = fleet(promised(9.5), photos(PHOTOS), running=(ONE_GPU, TWO_GPUS))
    plan = add(problem)
    assert {entry.service: entry.rate_per_second for entry in plan.unserved} == pytest.approx({NAME: 5.994})
    state = problem.state
    assert state is not None
    after = replace(problem, state=replace(state, running=plan.instances))
    assert rates(add(after)) == pytest.approx(rates(plan)), "what is left of an instance does not shrink again"


def test_of_min_instances_one_that_carries_nothing_does_not_stop_the_others() -> None:
    plan = add(fleet(promised(12.0, least=2), photos(PHOTOS), running=(ONE_GPU, TWO_GPUS)))
    assert rates(plan) == [3.0, 3.0]
    assert not plan.unserved


@pytest.mark.parametrize("mean_accuracy", [0.0, 0.65])
def test_shares_that_the_judge_refuses_hold_that_service_alone(mean_accuracy: float) -> None:
    """The instance with more room is of the variant that answers worse."""

    def rise(problem: Problem) -> Problem:
        variants = (Variant("fp16", 0.7, llm=SMALL), Variant("fp8", 0.6, llm=SMALL))
        known = problem.profiles["small", "fp16", "a100"]
        worse = replace(known, variant="fp8")
        return replace(
            problem,
            models={**problem.models, "small": variants},
            profiles={**problem.profiles, worse.key: worse},
        )

    service = replace(promised(60.0, 8.0), variants=("fp16", "fp8"), mean_accuracy=mean_accuracy)
    running: tuple[Instance, ...] = (ONE_GPU, replace(TWO_GPUS, variant="fp8"))
    plan = add(rise(fleet(service, photos(PHOTOS), running=running)))
    assert rates(plan) == pytest.approx([4.0, 4.0] if mean_accuracy else [3.0, 5.0])
    assert not plan.unserved
