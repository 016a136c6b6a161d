"""An answer holds until what it depends on changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import BETTER_AFTER, POSSIBLE_AFTER, LastQuestion, plan_conditions
from app.control.decide.regret import LEAD_HOURS, NO_REGRETS
from app.control.domain.decision import SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.domain.snapshot import Rest, Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from solvers.planning.batches.batch import Batch, BatchGroup, BatchKind
from solvers.planning.problem import Problem
from tests.app.control.answer.whatif.worlds import snapshot
from tests.app.control.test_certificates import OneMoment


class Asked(Inline):
    """Keeps the seeds with which it is asked."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        self.seeds.append(seed)
        return super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile)


class MaybeProposed(OneMoment):
    """A moment at which a plan may wait for approval."""

    def __init__(self, moment: Snapshot, has_proposal: bool) -> None:
        super().__init__(moment)
        self.is_proposed = has_proposal

    def has_proposal(self) -> bool:
        return self.is_proposed


def test_an_answer_from_the_middle_of_a_rollout_does_not_hold_after_it() -> None:
    rolling = replace(snapshot(a=10.0), is_rolling=True)
    question = formulate(rolling)
    last = LastQuestion(question.fingerprint, at=rolling.at, around=plan_conditions(rolling))
    assert last.still_answers(rolling, question)
    assert not last.still_answers(replace(rolling, is_rolling=False), question)


def test_a_proposal_outlives_the_rests_it_was_made_around_but_no_other_rest() -> None:
    now = snapshot(a=10.0)
    until = now.at + timedelta(minutes=1)
    first, second = ({"shop/a": Rest(until, ((node, 0),))} for node in sorted(now.nodes)[:2])

    def is_proposed(last: LastQuestion, resting: dict[str, Rest]) -> bool:
        then = last.as_proposed(replace(now, resting=resting))
        return last.still_answers(then, formulate(close_failed_places(then)))

    asked: Snapshot = close_failed_places(replace(now, resting=first))
    last = LastQuestion(formulate(asked).fingerprint, at=now.at, around=plan_conditions(asked))
    assert is_proposed(last, first) and not is_proposed(last, {})
    last = replace(last, rests=first)
    assert is_proposed(last, first) and is_proposed(last, {})
    assert not is_proposed(last, second) and not is_proposed(last, {"shop/b": Rest(until)})


def asked_after(now: Snapshot, minutes: list[float], *, has_proposal: bool = False) -> list[int]:
    """Returns the seeds with which a fleet that runs its plan is asked about in cycles at these minutes."""
    first, solver, last = OneMoment(now), Asked(), LastQuestion()
    run_cycle(first, Inline(), lambda known: now.expected, last, CycleBudget(work=2))
    running = replace(now, in_force=first.decisions[0].desired, target=1)
    for minute in minutes:
        store = MaybeProposed(replace(running, at=now.at + timedelta(minutes=minute)), has_proposal)
        last = run_cycle(store, solver, lambda known: now.expected, last, CycleBudget(work=2, seed=7)).last_question
        assert not store.decisions
    return solver.seeds


def test_a_question_that_stays_the_same_is_asked_with_another_seed_each_time_after_twice_as_long() -> None:
    pause = BETTER_AFTER.total_seconds() / 60
    moments = [pause * quarter / 4 for quarter in range(4 * 15)]
    assert asked_after(snapshot(a=10.0), moments) == [7, 8, 9, 10]  # after 0, 1, 3 and 7 pauses


def test_what_had_no_order_of_steps_is_looked_for_again_soon() -> None:
    now = snapshot(a=10.0).at
    batch = Batch((BatchGroup((("node-0", 0),), BatchKind.SOLVED),), 1.0, LEAD_HOURS)
    waiting = NO_REGRETS.measured(now, [batch])
    assert waiting.due(now) and not waiting.is_refused
    soon = now + POSSIBLE_AFTER
    assert not LastQuestion(at=now, regrets=waiting).may_be_bettered(soon)
    refused = LastQuestion(at=now, regrets=waiting.refused(batch))
    assert refused.may_be_bettered(soon)
    assert not replace(refused, repeats=1).may_be_bettered(soon)


def test_nothing_is_asked_again_while_a_person_reads_a_proposal() -> None:
    assert asked_after(snapshot(a=10.0), [0.0, 10.0, 1_000.0], has_proposal=True) == [7]
