"""A quick step is judged by what it changes: cost, changes and predictions equal those of a full judgement."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from app.control.domain.decision import SolveOutcome
from app.control.fast import CapacityNeed, StepTrigger
from app.control.fast.base import StepBase, step_base
from app.control.formulate.formulate import formulate
from app.control.formulate.predict import predict_instances
from app.control.solve.inline import Inline
from solvers.planning.judge import JudgedPlan
from solvers.planning.kept_bound import KeptBound
from solvers.planning.search.promise import keep
from tests.proofs.replays import begun

SECONDS = 60.0  # a guard
BREAKS_A_RULE = "a plan that keeps every rule would cost more"


def test_a_quick_step_that_breaks_a_rule_is_wrong_and_names_the_rule() -> None:
    snapshot = begun(0)
    base = step_base(snapshot, formulate(snapshot))
    services = base.question.problem.services
    needs = [
        CapacityNeed(name, StepTrigger.LOAD_ROSE, 1.2 * service.rate_per_second, service.rate_per_second, "load rose")
        for name, service in services.items()
    ]
    quick = base.find_step(needs, Inline(), strict=False, seconds=SECONDS, elsewhere={})
    assert quick is not None
    first, *others = quick.plan.instances
    spoiled = replace(quick.plan, instances=(replace(first, sm_percent=1), *others))
    decision = base.decide(replace(quick, plan=spoiled), snapshot.at)
    assert decision.answer.outcome is SolveOutcome.WRONG
    assert "sm_profiled" in decision.answer.message


def stepped(base: StepBase, r: Random) -> StepBase | None:
    """A step for one service, judged both ways; the base of the next one."""
    name = r.choice(sorted(base.question.problem.services))
    rate = base.question.problem.services[name].rate_per_second * r.uniform(1.1, 3.0)
    call = CapacityNeed(name, StepTrigger.LOAD_ROSE, rate * 1.1, rate, "load rose")
    quick = base.find_step([call], Inline(), strict=False, seconds=SECONDS, elsewhere={})
    if quick is None:
        return None
    decision = base.decide(quick, base.snapshot.at)
    problem = base.question.problem.change_rates(
        {name: rate - base.elsewhere.get(name, 0.0) for name, rate in quick.rates.items()}
    )
    judged = JudgedPlan(problem, quick.plan, keep)
    assert decision.answer.outcome is SolveOutcome.SOLVED
    assert decision.plan.certificate
    assert decision.plan.certificate.cost == judged.verdict().cost
    assert decision.plan.changes == judged.verdict().changes
    predicted = predict_instances(problem, judged.residents)
    expected = tuple(predicted[id(line)] for line in quick.plan.instances)
    assert decision.plan.instances == expected
    assert all(job.units_per_second > 0 for job in decision.plan.jobs)
    return base.after(quick, replace(decision, base=base.snapshot.target), base.snapshot.target + 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_quick_step_is_judged_as_if_from_the_beginning(seed: int) -> None:
    r = Random(seed)
    snapshot = begun(seed)
    base: StepBase | None = step_base(snapshot, formulate(snapshot))
    for _ in range(4):
        if base is None or not base.question.problem.services:
            return
        base = stepped(base, r)


@pytest.mark.slow
def test_a_quick_step_has_the_last_searchs_bound_at_its_own_rates_and_says_how_old_it_is() -> None:
    bounded = 0
    for seed in range(8):
        r = Random(seed)
        snapshot = begun(seed)
        base = step_base(snapshot, formulate(snapshot))
        problem, now = base.question.problem, snapshot.at + timedelta(seconds=7)
        if not problem.services:
            continue
        duals = Inline().solve(problem, seconds=SECONDS, work=2).duals
        kept = KeptBound(problem, duals, snapshot.at) if duals else None
        name = r.choice(sorted(problem.services))
        rate = problem.services[name].rate_per_second * 1.5
        call = CapacityNeed(name, StepTrigger.LOAD_ROSE, rate * 1.1, rate, "load rose")
        quick = base.find_step([call], Inline(), strict=False, seconds=SECONDS, elsewhere={})
        if quick is None:
            continue
        certificate = base.decide(quick, now, kept).plan.certificate
        assert certificate
        if certificate.bound is not None:
            bounded += 1
            assert certificate.bound <= certificate.cost.total
            assert (certificate.bound_age_seconds, certificate.no_bound_reason) == (7.0, "")
        else:
            assert certificate.no_bound_reason in ("no search has found one yet", BREAKS_A_RULE)
    assert bounded >= 3


@pytest.mark.slow
def test_a_quick_step_has_no_bound_once_profiles_have_changed() -> None:
    snapshot = begun(1)
    base = step_base(snapshot, formulate(snapshot))
    problem = base.question.problem
    duals = Inline().solve(problem, seconds=SECONDS, work=2).duals
    assert duals
    key = next(iter(problem.profiles))
    slower = replace(problem.profiles[key], demand=replace(problem.profiles[key].demand, sensitivity=0.9))
    before = replace(problem, profiles={**problem.profiles, key: slower})
    name = min(problem.services)
    rate = problem.services[name].rate_per_second * 1.5
    call = CapacityNeed(name, StepTrigger.LOAD_ROSE, rate * 1.1, rate, "load rose")
    quick = base.find_step([call], Inline(), strict=False, seconds=SECONDS, elsewhere={})
    assert quick
    certificate = base.decide(quick, snapshot.at, KeptBound(before, duals, snapshot.at)).plan.certificate
    assert certificate
    assert (certificate.bound, certificate.no_bound_reason) == (None, "profiles changed since it was computed")
