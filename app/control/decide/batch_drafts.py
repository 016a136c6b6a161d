"""Drafts a decision with batches of moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from app.control.decide.as_declared import answers_edit
from app.control.decide.cordons import draining_gpus
from app.control.decide.decide import find_modes, judge_changes, write_changes
from app.control.decide.effort import effort
from app.control.decide.least_change import MOST_OTHERS, find_moved_others
from app.control.decide.resting import is_avoided
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import BatchMaker
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import find_blocked
from app.control.rollout.rules import WaitingChange
from solvers.planning.batches.batch import WHOLE, Batch, GroupRow, MoveLimit
from solvers.planning.plan import Cost, Plan, take_shortfalls
from solvers.planning.problem import Problem

URGENT_SECONDS = 3.0  # in a cycle that answers a lack, which is to be on record soon
MOST_REHEARSED = 3  # batches in a cycle


@dataclass(frozen=True)
class BatchContext:
    """A decision as it is without batches, and what it was made from."""

    snapshot: Snapshot
    question: Question
    decision: Decision
    seconds: float  # the most that the solver may take
    whole: Decision | None = None  # a whole plan that only saves: it waits as batches do
    looks_for_whole: bool = True  # False if a whole plan is no question of cost alone

    @property
    def whole_batch(self) -> Batch | None:
        """What the whole plan saves and costs."""
        if self.whole is None or self.whole.verdict is None or self.whole.value is None:
            return None
        saved = self.question.verdict.cost.total - self.whole.verdict.cost.total
        return Batch(WHOLE, saved, self.whole.value.churn, effort=effort(self.question, self.whole.plan.changes))

    @property
    def allows_batches(self) -> bool:
        """False before there is a plan, while GPUs are drained, and while a rollout is paused or lacks capacity.

        What answers a lack starts a rollout at once: it may take batches along, unless it waits for approval.
        """
        snapshot = self.snapshot
        if not snapshot.in_force or snapshot.is_paused or draining_gpus(snapshot.nodes):
            return False
        if self.is_urgent:
            return find_modes(snapshot, self.decision.services) == {"auto"}
        return not (snapshot.is_rolling and self.question.falls_short)

    @property
    def is_urgent(self) -> bool:
        """True if the decision answers a lack."""
        return self.question.falls_short and not self.is_unchanged

    @property
    def is_unchanged(self) -> bool:
        """True if the decision is to change nothing."""
        return self.decision.desired == self.snapshot.in_force

    @cached_property
    def limit(self) -> MoveLimit | None:
        """How many services batches may move beside what an edit needs; None where there is none."""
        if self.is_unchanged or not answers_edit(self.snapshot, self.question):
            return None
        moved = find_moved_others(self.question, self.decision.plan)
        return MoveLimit(self.question.lacking | moved, max(0, MOST_OTHERS - len(moved)))

    def moves_few(self, found: Decision) -> bool:
        """Returns whether a decision with batches moves no more services than the limit allows."""
        return self.limit is None or self.limit.allows(find_moved_others(self.question, found.plan))

    @property
    def most_seconds(self) -> float:
        """The most that one order to the solver may take."""
        return min(URGENT_SECONDS, self.seconds) if self.is_urgent else self.seconds

    @property
    def most_rehearsed(self) -> int:
        """The most batches of which one may be made: a single one if the lack is answered without it."""
        return 1 if self.is_urgent and not self.decision.plan.unserved else MOST_REHEARSED

    @property
    def churn(self) -> float:
        """The churn of the decision without batches."""
        return 0.0 if self.is_unchanged or self.decision.value is None else self.decision.value.churn

    @property
    def effort(self) -> float:
        """The price of the changes of the decision without batches, beside their churn."""
        return 0.0 if self.is_unchanged else effort(self.question, self.decision.plan.changes)

    @property
    def costs(self) -> Cost:
        """The costs an hour of the decision without batches."""
        verdict = None if self.is_unchanged else self.decision.verdict
        return (verdict or self.question.verdict).cost

    @property
    def cost(self) -> float:
        return self.costs.total

    @property
    def plan(self) -> Plan:
        """The plan that batches start from."""
        return self.question.plan_in_force if self.is_unchanged else self.decision.plan


def decide_with_batches(context: BatchContext, groups: GroupRow, solver: BatchMaker) -> Decision | None:
    """Returns the decision with these batches; None if they save nothing, or if no order of steps leads there."""
    found = write_batches(context, groups, solver)
    return judge_batches(context, found) if found and leads_to(context, found) else None


def leads_to(context: BatchContext, found: Decision) -> bool:
    """Returns whether an order of steps leads to the decision, each of which keeps every service's capacity.

    The steps are rehearsed from what nodes are assigned.
    """
    return not find_blocked_changes(context, found)


def find_blocked_changes(context: BatchContext, found: Decision) -> tuple[WaitingChange, ...]:
    """Returns the changes that wait for each other if no order of steps leads to the decision; none if one does."""
    return find_blocked(context.snapshot.assignments, found.desired, read_rules(context.snapshot.declared))


def write_batches(context: BatchContext, groups: GroupRow, solver: BatchMaker) -> Decision | None:
    """Returns the decision with these batches, before it is judged; None if they save nothing."""
    snapshot, decision = context.snapshot, context.decision
    answer = solver.make_batches(context.question.problem, context.plan, groups, seconds=context.most_seconds)
    if answer.plan is None:
        return None
    answer = replace(decision.answer, plan=take_bound(answer.plan, decision.answer.plan, context.question.problem))
    found = write_changes(snapshot, context.question, answer, decision.lane, decision.reason)
    if not context.moves_few(found) or is_avoided(snapshot, found.desired, decision.desired):
        return None
    # What answers a lack, or joins a rollout, does not wait until a person approves of a batch.
    starts_at_once = context.is_urgent or snapshot.is_rolling
    if starts_at_once and find_modes(snapshot, {*decision.services, *found.services}) != {"auto"}:
        return None
    return found


def judge_batches(context: BatchContext, found: Decision) -> Decision | None:
    """Returns the decision judged, which takes longest; None if the judge refuses it."""
    found = judge_changes(context.question, found)
    return None if found.answer.outcome is SolveOutcome.WRONG else replace(found, held_back=context.decision.held_back)


def take_bound(plan: Plan, searched: Plan | None, problem: Problem) -> Plan:
    """Returns the plan with the search's bound and others' plans, which hold beside every plan for the same problem."""
    known, own = searched.certificate if searched else None, plan.certificate
    if known is None or own is None:
        return plan
    own = replace(own, others=known.others, shortfalls=take_shortfalls(problem, plan, searched))
    if known.bound is not None and known.bound > own.cost.total:
        return replace(plan, certificate=replace(own, no_bound_reason="the bound of the search exceeds the cost"))
    certificate = replace(
        own, bound=known.bound, bound_age_seconds=known.bound_age_seconds, no_bound_reason=known.no_bound_reason
    )
    return replace(plan, certificate=certificate.add_programme(known.programme))
