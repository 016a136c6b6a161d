"""Plans around GPUs where steps failed: nothing changes there, every rule is kept, and all that runs is in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.control.decide.around import judge_in_whole_fleet, list_shortfalls, serves_as_much, serves_more
from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.decision import SolveOutcome
from app.control.domain.snapshot import Rest
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from tests.app.control.decide.test_choosing import GPUS, NODES, SERVICES, in_force, running, weighed
from tests.solvers.planning.random_problems import NOON
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

SECONDS = 60.0  # a guard
UNTIL = NOON + timedelta(minutes=1)


def test_plans_around_a_closed_gpu_change_nothing_there_and_are_written_for_the_whole_fleet() -> None:
    r, changed = Random(2), 0
    for case in range(scaled(2_000, 60)):
        rates = {name: rate * r.choice((0.6, 1.0, 1.5)) for name, rate in SERVICES.items()}
        place = (r.choice(sorted(NODES)), r.randrange(GPUS))
        now = replace(in_force(r, rates), resting={r.choice(sorted(rates)): Rest(UNTIL, (place,))})
        around = close_failed_places(now)
        question = formulate(around)
        answer = Inline().solve(question.problem, seconds=SECONDS, work=2)
        if answer.plan is None:
            continue
        decision = hold_back(around, question, draft_changes(around, question, answer))
        assert decision.answer.outcome is SolveOutcome.SOLVED, case
        assert running(decision.desired).get(place) == running(now.in_force).get(place), case
        whole = judge_in_whole_fleet(now, decision, around)
        if whole is None:
            assert not formulate(now).verdict.is_right, case
            continue
        assert whole.desired == decision.desired
        assert len(whole.plan.instances) == sum(shapes.total() for shapes in running(decision.desired).values()), case
        assert whole.plan.certificate and whole.plan.certificate.bound is None
        lacks = sum(list_shortfalls(now, formulate(now), whole).values())
        carried = weighed(whole.desired, now.in_force, rates)
        assert (lacks > 1e-3) == (carried.unserved > 0), case
        changed += decision.desired != now.in_force
    assert changed > 10


lacks = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([1.0, 1.0 + 1e-9, 2.0]))


@given(lacks, lacks)
def test_one_plan_serves_more_than_another_if_it_serves_none_worse(
    some: dict[str, float], others: dict[str, float]
) -> None:
    rounded = [{name: round(lack) for name, lack in each.items()} for each in (some, others)]
    pairs = [(rounded[0].get(name, 0), rounded[1].get(name, 0)) for name in "abc"]
    is_expected = all(lack <= other for lack, other in pairs) and any(lack < other for lack, other in pairs)
    assert serves_more(some, others) == is_expected
    assert not (serves_more(some, others) and serves_more(others, some))
    assert serves_as_much(some, others) == all(lack <= other for lack, other in pairs)
