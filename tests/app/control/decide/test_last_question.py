"""An answer holds until what it depends on changes."""

from __future__ import annotations

from dataclasses import replace

from app.control.decide.last_question import LastQuestion, plan_conditions
from app.control.formulate.formulate import formulate
from tests.app.control.answer.whatif.worlds import snapshot


def test_an_answer_from_the_middle_of_a_rollout_does_not_hold_after_it() -> None:
    rolling = replace(snapshot(a=10.0), is_rolling=True)
    question = formulate(rolling)
    last = LastQuestion(question.fingerprint, at=rolling.at, around=plan_conditions(rolling))
    assert last.still_answers(rolling, question)
    assert not last.still_answers(replace(rolling, is_rolling=False), question)
