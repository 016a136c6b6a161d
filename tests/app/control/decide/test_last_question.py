"""An answer holds until what it depends on changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from app.control.cycle import CycleBudget
from app.control.decide.decide import LONGEST_ROLLING
from app.control.decide.last_question import OTHER_SEED_AFTER, REFUSED_AGAIN_AFTER, LastQuestion, plan_conditions
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.domain.regret import LEAD_HOURS, LEAST_WAITING, NO_REGRETS
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Rest, Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.observe.observer import ForecastInput
from app.control.solve.inline import Inline
from solvers.planning.batches.batch import Batch, BatchGroup, BatchKind
from solvers.planning.measured import MeasuredInstance
from solvers.planning.problem import Problem
from tests.app.control.answer.whatif.worlds import snapshot
from tests.app.control.cycles import one_cycle
from tests.app.control.test_certificates import OneMoment


class SeedRecorder(Inline):
    """Keeps the seeds with which it is asked."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        self.seeds.append(seed)
        return super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile)


def test_an_answer_from_the_middle_of_a_rollout_does_not_hold_after_it() -> None:
    rolling = replace(snapshot(a=10.0), is_rolling=True)
    question = formulate(rolling)
    last = LastQuestion(question.fingerprint, at=rolling.at, conditions=plan_conditions(rolling))
    assert last.still_answers(rolling, question)
    assert not last.still_answers(replace(rolling, is_rolling=False), question)


@pytest.mark.slow
def test_a_plan_is_asked_for_during_rollouts_that_have_followed_each_other_for_long(full: Snapshot) -> None:
    rolling, solver = replace(full, is_rolling=True), SeedRecorder()
    store, known = OneMoment(rolling), partial(expected, rolling)
    first = one_cycle(store, solver, known, LastQuestion(), CycleBudget(work=2)).last_question
    assert first.rolling_since == rolling.at
    assert solver.seeds == [], "the rollout is to finish first"
    later = replace(first, rolling_since=rolling.at - LONGEST_ROLLING)
    assert (
        one_cycle(store, solver, known, later, CycleBudget(work=2)).last_question.rolling_since == later.rolling_since
    )
    assert len(solver.seeds) == 1
    assert later.rolls_since(full) is None


def test_a_proposal_outlives_the_rests_it_was_made_around_but_no_other_rest() -> None:
    now = snapshot(a=10.0)
    until = now.at + timedelta(minutes=1)
    first, second = ({"shop/a": Rest(until, ((node, 0),))} for node in sorted(now.nodes)[:2])

    def is_proposed(last: LastQuestion, resting: dict[str, Rest]) -> bool:
        then = last.keep_proposed_rests(replace(now, resting=resting))
        return last.still_answers(then, formulate(close_failed_places(then)))

    asked: Snapshot = close_failed_places(replace(now, resting=first))
    last = LastQuestion(formulate(asked).fingerprint, at=now.at, conditions=plan_conditions(asked))
    assert is_proposed(last, first) and not is_proposed(last, {})
    last = replace(last, rests=first)
    assert is_proposed(last, first) and is_proposed(last, {})
    assert not is_proposed(last, second) and not is_proposed(last, {"shop/b": Rest(until)})


def test_a_proposal_outlives_the_minutes_that_are_measured_meanwhile() -> None:
    now = snapshot(a=10.0)
    question = formulate(now)
    last = LastQuestion(question.fingerprint, at=now.at, conditions=plan_conditions(now), is_shown=True)
    assert question.problem.state
    state = replace(question.problem.state, measured={"a-1": MeasuredInstance(now.at, 4, 50.0)}, paces={"lab/j": 2.0})
    later = replace(question, problem=replace(question.problem, state=state))
    assert last.still_answers(replace(now, at=now.at + timedelta(seconds=30)), later)


def asked(moments: Sequence[Snapshot]) -> tuple[list[int], LastQuestion]:
    """Returns the seeds with which cycles at these moments ask the solver, and the last question."""
    solver, last = SeedRecorder(), LastQuestion()
    for moment in moments:
        store = OneMoment(moment)
        found = one_cycle(store, solver, partial(expected, moment), last, CycleBudget(work=2, seed=7))
        last = found.last_question
    return solver.seeds, last


def expected(moment: Snapshot, known: ForecastInput) -> Mapping[str, ExpectedLoad]:
    return moment.expected


def running(now: Snapshot) -> Snapshot:
    """Returns the snapshot of a fleet that runs what is planned for it."""
    store = OneMoment(now)
    one_cycle(store, Inline(), partial(expected, now), LastQuestion(), CycleBudget(work=2))
    return replace(now, in_force=store.decisions[0].desired, target=1)


def in_mode(now: Snapshot, mode: str) -> Snapshot:
    others = tuple(item for item in now.declared if item.kind != "Policy")
    return replace(now, declared=(*others, DeclaredObject("Policy", "", "default", {"mode": mode})))


def after(now: Snapshot, minutes: float) -> Snapshot:
    return replace(now, at=now.at + timedelta(minutes=minutes))


@pytest.mark.slow
def test_a_question_that_stays_the_same_is_asked_with_another_seed_each_time_after_twice_as_long() -> None:
    pause, now = OTHER_SEED_AFTER.total_seconds() / 60, running(snapshot(a=10.0))
    seeds, last = asked([after(now, pause * quarter / 4) for quarter in range(4 * 15)])
    assert seeds == [7, 8, 9, 10]  # after 0, 1, 3 and 7 pauses
    other = formulate(replace(now, expected={"shop/a": ExpectedLoad(20.0)}))
    assert last.count_other_seeds(now, other) == 0, "another question"


def test_people_who_read_a_plan_or_have_rejected_it_get_no_other_every_few_minutes() -> None:
    now = in_mode(snapshot(a=10.0), "approve")
    seeds, last = asked([after(now, minutes) for minutes in (0.0, 10.0, 1_000.0)])
    assert last.is_shown
    assert seeds == [7]


def test_a_question_that_the_solver_failed_on_waits_its_minute() -> None:
    now = snapshot(a=10.0)
    failed = LastQuestion(at=now.at, outcome=SolveOutcome.CRASHED)
    assert not failed.is_worth_another_seed(now.at + timedelta(hours=1))


def test_what_had_no_order_of_steps_is_looked_for_again_soon() -> None:
    now = snapshot(a=10.0).at
    batch = Batch((BatchGroup((("node-0", 0),), BatchKind.SOLVED),), 1.0, LEAD_HOURS)
    waiting = NO_REGRETS.measured(now, [batch], LEAST_WAITING)
    assert waiting.due(now) and not waiting.is_refused
    soon = now + REFUSED_AGAIN_AFTER
    assert not LastQuestion(at=now, regrets=waiting).is_worth_another_seed(soon)
    refused = LastQuestion(at=now, regrets=waiting.refused(batch))
    assert refused.is_worth_another_seed(soon)
    assert not replace(refused, other_seeds=1).is_worth_another_seed(soon)
