"""An answer holds until what it depends on changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.control.decide.last_question import LastQuestion, plan_conditions
from app.control.domain.snapshot import Rest, Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from tests.app.control.answer.whatif.worlds import snapshot


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
