"""Chooses what is recorded: the whole new plan, the least change or nothing, each weighed as far as it can be reached.

A plan that looks best may leave a mixture once changes without an order of steps are held back, and that mixture may
serve less or cost more than another plan in hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.control.decide.as_declared import answers_edit
from app.control.decide.decide import hold_back
from app.control.decide.effort import effort
from app.control.decide.least_change import (
    MOST_HANDOVERS,
    MOST_OTHERS,
    count_handed_over,
    find_moved_others,
    is_too_large,
)
from app.control.domain.decision import Decision
from app.control.domain.regret import LEAD_HOURS
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question

FEW_AT_ONCE = 3  # hand-overs that answer a lack before anything smaller is looked for

Follow = Callable[[bool], Decision | None]  # drafts the least change; with True only if rates have moved
Cheapen = Callable[[Decision], Decision]  # adds the batches of moves that pay at once
Shift = Callable[[Decision], Decision | None]  # drafts a plan again so that it has an order of steps


def choose(
    snapshot: Snapshot, question: Question, large: Decision, follow: Follow, cheapen: Cheapen, shift: Shift
) -> Decision:
    """Returns the best of the plans in hand after holding back, or a decision that keeps the plan in force.

    `follow` is called at most once, and only where the large plan is too large, is not possible as a whole, or answers
    a lack or an edit by many hand-overs. The least change is returned without batches, which the cycle adds to any
    decision.
    """
    first, second = large, None
    moves_many = _moves_many(question, large) and answers_edit(snapshot, question)
    is_hasty = question.falls_short and (count_handed_over(large.plan.changes) > FEW_AT_ONCE or moves_many)
    is_edited = moves_many and not question.falls_short
    is_asked = is_hasty or is_edited or is_too_large(snapshot, large.plan.changes)
    small = follow(not is_edited) if is_asked else None
    if small:
        is_answer = is_edited and _serves_as_much(small, large)
        is_answer = is_answer or (is_hasty and _is_enough(question, small, large, cheapen, moves_many=moves_many))
        first, second = (small, large) if is_answer or is_preferred(small, large) else (large, small)
    found = _reach(snapshot, question, first, shift)
    if found.desired != first.desired:
        if second is None and (question.falls_short or _is_better_than_now(large, question)):
            second = follow(False)
        if second is not None and _is_searched(second):
            other = _reach(snapshot, question, second, shift)
            found = other if _is_better(other, found) else found
    return _say_why_many(found, large, small) if moves_many and small else found


def _say_why_many(found: Decision, large: Decision, small: Decision) -> Decision:
    """Says why many others move, where the least change would leave more unserved."""
    lacks = [f"{each.rate_per_second:.4g} requests a second of {each.service}" for each in small.plan.unserved]
    if found.desired != large.desired or found.message or not lacks or _serves_as_much(small, large):
        return found
    return replace(found, message=f"other services move since the least change leaves {lacks[0]} unserved")


def _reach(snapshot: Snapshot, question: Question, decision: Decision, shift: Shift) -> Decision:
    """Returns the decision as far as it can be reached; where load is unserved, shifted if that serves more."""
    found = hold_back(snapshot, question, decision)
    is_reached = found.desired == decision.desired
    if is_reached or not question.falls_short or not _is_better_than_now(decision, question):
        return found
    shifted = shift(decision)
    other = hold_back(snapshot, question, shifted) if shifted else None
    return other if other is not None and _is_better(other, found) else found


def is_preferred(small: Decision, large: Decision) -> bool:
    """Returns whether the smaller plan serves as much for no more, or the larger is too large to find an order."""
    return not _is_searched(large) or not _is_better(large, small)


def _is_enough(question: Question, small: Decision, large: Decision, cheapen: Cheapen, *, moves_many: bool) -> bool:
    """Returns whether the larger plan can wait for the smaller one, as it is or with the batches that pay at once.

    The least change moves no other service. So it may open a dear GPU for what fits once a neighbour has moved. What
    answers an edit and moves many others waits even if it is soon repaid: people shall see why each of them moves.
    """
    if not _serves_enough(question, small, large):
        return moves_many and _serves_enough(question, cheapen(small), large)
    return moves_many or _can_wait(question, small, large) or _can_wait(question, cheapen(small), large)


def _moves_many(question: Question, decision: Decision) -> bool:
    changes = decision.plan.changes
    if changes.made + changes.stop <= MOST_OTHERS:  # nearly always
        return False
    return len(find_moved_others(question, decision.plan)) > MOST_OTHERS


def _serves_enough(question: Question, small: Decision, large: Decision) -> bool:
    """Returns whether the smaller plan is right and serves as much as the larger, and mends something.

    A lack that lasts is no reason to wait.
    """
    if not _serves_as_much(small, large) or small.value is None:
        return False
    return not question.verdict.is_right or small.value.unserved < question.value_in_force.unserved


def _serves_as_much(small: Decision, large: Decision) -> bool:
    if small.value is None or large.value is None or small.verdict is None or not small.verdict.is_right:
        return False
    return small.value.unserved <= large.value.unserved


def _can_wait(question: Question, small: Decision, large: Decision) -> bool:
    """Returns whether the larger plan repays late what its hand-overs cost beyond those of the smaller one.

    A load that has just risen often rises further, and then another plan replaces the larger one while it is rolled
    out. So a lack is answered by little at once, and what the larger plan saves is waited for, like any cheaper plan.
    """
    if small.value is None or large.value is None or small.verdict is None or large.verdict is None:
        return False
    saved = small.verdict.cost.total - large.verdict.cost.total
    price = large.value.churn - small.value.churn
    price += effort(question, large.plan.changes) - effort(question, small.plan.changes)
    return price > max(0.0, saved * LEAD_HOURS)


def _is_better(decision: Decision, other: Decision) -> bool:
    return decision.value is not None and (other.value is None or decision.value.is_better_than(other.value))


def _is_better_than_now(decision: Decision, question: Question) -> bool:
    return decision.value is not None and decision.value.is_better_than(question.value_in_force)


def _is_searched(decision: Decision) -> bool:
    """Returns whether an order of steps is searched; with too many hand-overs it is not."""
    return count_handed_over(decision.plan.changes) <= MOST_HANDOVERS
