"""Answers a lack in the middle of a rollout from what nodes are assigned, where the plan in force is in the way.

A plan that serves more may have no order of steps only because the rest of the rollout has to be made first, which the
lack forbids: copies that were to stop are needed now. Then the rollout is given up where it is, and what nodes are
assigned follows the rates by the least change, most of which starts copies in room that is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.control.decide.around import (
    FoundAnswer,
    judge_in_whole_fleet,
    list_shortfalls,
    list_shortfalls_in_whole_fleet,
    serves_more,
)
from app.control.decide.decide import hold_back
from app.control.domain.decision import Decision
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import plan_as_assigned
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question

Following = Callable[[Snapshot, Question], Decision | None]  # drafts the least change


def answer_midway(snapshot: Snapshot, question: Question, found: FoundAnswer, following: Following) -> FoundAnswer:
    """Returns the answer; one that gives the rollout up where more was wanted, and that serves more."""
    decision, wanted = found.decision, found.wanted
    if snapshot.assigned is None or not question.falls_short or decision is None or wanted is None:
        return found
    shortfalls = list_shortfalls(snapshot, question, decision)
    if not serves_more(list_shortfalls(snapshot, question, wanted), shortfalls):
        return found
    around = plan_as_assigned(found.searched)
    asked = formulate(around)
    least = following(around, asked)
    held = least and hold_back(around, asked, least)
    if held is None or not serves_more(list_shortfalls_in_whole_fleet(snapshot, question, held), shortfalls):
        return found
    other = judge_in_whole_fleet(snapshot, held, around)
    return replace(found, decision=other, searched=around) if other else found
