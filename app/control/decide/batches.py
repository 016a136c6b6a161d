"""Adds batches of moves to a decision: what runs comes closer to the cheapest plan, by as little churn as it takes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.control.decide.cordons import draining_gpus
from app.control.decide.decide import draft_changes, modes_of
from app.control.decide.regret import RegretAccounts
from app.control.decide.resting import is_avoided
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import BatchMaker, PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.rollout import order
from app.control.rollout.changes import changes
from app.control.rollout.rehearsal import rehearsed
from app.control.rollout.rules_of import rules_of
from app.manifests.model import JSON
from solvers.planning.batches.batch import Batch, BatchGroup, BatchKind, GroupRow
from solvers.planning.plan import Plan
from solvers.planning.problem import Place

log = logging.getLogger(__name__)

TRIES = 32  # groups of GPUs in a cycle, besides those that are known
URGENT_TRIES, URGENT_SECONDS = 16, 3.0  # in a cycle that answers a lack, which is to be on record soon
MOST_REHEARSED = 3  # batches in a cycle
MOST_SHIFTED = 3  # GPUs of a batch whose changes block each other
RECIPE_KEY = "batches"


@dataclass(frozen=True, slots=True)
class BatchContext:
    """A decision as it is without batches, and what it was made from."""

    snapshot: Snapshot
    question: Question
    decision: Decision
    seconds: float  # the most that the solver may take

    @property
    def allows_batches(self) -> bool:
        """False before there is a plan, while GPUs are drained, and while a rollout goes on or is paused.

        What answers a lack starts another rollout anyway: it may take batches along, unless it waits for approval.
        """
        snapshot = self.snapshot
        if not snapshot.in_force or snapshot.is_paused or draining_gpus(snapshot.nodes):
            return False
        if self.is_urgent:
            return modes_of(snapshot, self.decision.services) == {"auto"}
        return not snapshot.is_rolling and snapshot.assigned is None

    @property
    def is_urgent(self) -> bool:
        """True if the decision answers a lack."""
        return self.question.falls_short and self.decision.desired != self.snapshot.in_force

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
        is_unchanged = self.decision.desired == self.snapshot.in_force
        return 0.0 if is_unchanged or self.decision.value is None else self.decision.value.churn

    @property
    def plan(self) -> Plan:
        """The plan that batches start from."""
        is_unchanged = self.decision.desired == self.snapshot.in_force
        return self.question.plan_in_force if is_unchanged else self.decision.plan


def add_due_batches(
    context: BatchContext, regrets: RegretAccounts, solver: PlanSolver
) -> tuple[Decision, RegretAccounts]:
    """Returns the decision with the batches that are due, and the accounts of those that wait."""
    decision, now = context.decision, context.snapshot.at
    if not context.allows_batches:
        return decision, regrets
    tries = URGENT_TRIES if context.is_urgent else TRIES
    answer = solver.find_batches(
        context.question.problem, context.plan, regrets.groups, tries=tries, seed=int(now.timestamp()),
        seconds=context.most_seconds,
    )  # fmt: skip
    if answer.outcome is not SolveOutcome.SOLVED:
        log.warning("no_batches", extra={"outcome": answer.outcome, "error": answer.message})
        return decision, regrets
    regrets = regrets.measured(now, answer.batches)
    shifts = MOST_SHIFTED
    for batch in regrets.due(now)[: context.most_rehearsed]:
        found = draft_batches(context, batch.groups, solver)
        if found and is_stuck(context.snapshot, found):
            found = _shifted(context, batch, found, regrets.most_churn(batch, now), solver) if shifts else None
            shifts = 0
        if found:
            return replace(found, message=_spell(batch)), regrets.made(batch)
        regrets = regrets.refused(batch)
    return decision, regrets


def _shifted(
    context: BatchContext, batch: Batch, found: Decision, most_churn: float, solver: BatchMaker
) -> Decision | None:
    """Returns the decision with what some of its GPUs shall run on empty ones instead; None if that has no order either.

    In a full group of GPUs each change waits for room that another one holds. On an empty GPU nothing waits.
    """
    groups = batch.groups
    for _ in range(MOST_SHIFTED):
        place = _most_blocked(context.snapshot, found)
        if place is None:
            return None
        groups = (*groups, BatchGroup((place,), BatchKind.SHIFTED))
        other = draft_batches(context, groups, solver)
        if other is None or other.value is None or other.value.churn - context.churn > most_churn:
            return None
        if not is_stuck(context.snapshot, other):
            return other
        found = other
    return None


def _most_blocked(snapshot: Snapshot, found: Decision) -> Place | None:
    """Returns the GPU on which most copies wait for room."""
    rules = rules_of(snapshot.declared)
    todo = {change.id: change for change in changes(snapshot.assignments, found.desired)}
    waiting = [todo[entry.instance] for entry in rehearsed(snapshot.assignments, found.desired, rules).waiting]
    blocked = Counter(change.place for change in waiting if change.takes_room)
    return max(blocked, key=lambda place: (blocked[place], place), default=None)


def is_stuck(snapshot: Snapshot, found: Decision) -> bool:
    """Returns whether no order of steps leads to the decision: each keeps every service's capacity.

    The steps are rehearsed from what nodes are assigned.
    """
    return bool(order(snapshot.assignments, found.desired, rules_of(snapshot.declared)).stuck)


def with_batches(context: BatchContext, groups: GroupRow, solver: BatchMaker) -> Decision | None:
    """Returns the decision with these batches; None if they save nothing, or if no order of steps leads there."""
    found = draft_batches(context, groups, solver)
    return None if found is None or is_stuck(context.snapshot, found) else found


def draft_batches(context: BatchContext, groups: GroupRow, solver: BatchMaker) -> Decision | None:
    """Returns the decision with these batches, which may have no order of steps; None if they save nothing."""
    snapshot, decision = context.snapshot, context.decision
    answer = solver.make_batches(context.question.problem, context.plan, groups, seconds=context.most_seconds)
    if answer.plan is None:
        return None
    recipe: dict[str, JSON] = {**decision.answer.recipe, RECIPE_KEY: [_to_json(group) for group in groups]}
    answer = replace(decision.answer, plan=_with_bound(answer.plan, decision.answer.plan), recipe=recipe)
    found = draft_changes(snapshot, context.question, answer, decision.lane, decision.reason)
    if found.answer.outcome is SolveOutcome.WRONG or is_avoided(snapshot, found.desired, decision.desired):
        return None
    # What answers a lack does not wait until a person approves of a batch, and a proposal does not change with each.
    if context.is_urgent and modes_of(snapshot, {*decision.services, *found.services}) != {"auto"}:
        return None
    return replace(found, held_back=decision.held_back)


def batches_again(context: BatchContext, recipe: Mapping[str, Any], solver: BatchMaker) -> Decision:
    """Returns the decision with the batches of a recipe, as it was made."""
    groups = tuple(_from_json(item) for item in recipe.get(RECIPE_KEY, ()))
    return (with_batches(context, groups, solver) if groups else None) or context.decision


def _with_bound(plan: Plan, searched: Plan | None) -> Plan:
    """Returns the plan with the bound of the search, which is true of every plan for the same problem."""
    known, own = searched.certificate if searched else None, plan.certificate
    if known is None or own is None:
        return plan
    if known.bound is not None and known.bound > own.cost.total:
        return replace(plan, certificate=replace(own, no_bound_reason="the bound of the search exceeds the cost"))
    certificate = replace(
        own, bound=known.bound, bound_age_seconds=known.bound_age_seconds, no_bound_reason=known.no_bound_reason
    )
    return replace(plan, certificate=certificate)


def _spell(batch: Batch) -> str:
    return f"a batch of moves saves {batch.saved_per_hour:.4g} an hour; its churn costs {batch.churn:.4g}"


def _to_json(group: BatchGroup) -> JSON:
    return {
        "gpus": [[node, index] for node, index in group.places],
        "kind": group.kind,
        "leaving": list(group.leaving),
        "seed": group.seed,
    }


def _from_json(item: Mapping[str, Any]) -> BatchGroup:
    places = tuple((str(node), int(index)) for node, index in item["gpus"])
    return BatchGroup(places, BatchKind(item["kind"]), tuple(item["leaving"]), int(item["seed"]))
