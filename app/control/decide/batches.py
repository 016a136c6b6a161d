"""Adds batches of moves to a decision: what runs comes closer to the cheapest plan, by as little churn as it takes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from app.control.decide.batch_drafts import (
    BatchContext,
    decide_with_batches,
    find_blocked_changes,
    judge_batches,
    write_batches,
)
from app.control.decide.effort import effort
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import BatchMaker, PlanSolver
from app.control.domain.regret import RegretAccounts, most_waiting
from app.control.domain.snapshot import Snapshot
from app.control.rollout.changes import changes
from app.control.rollout.rules import WaitingChange
from solvers.planning.batches.batch import WHOLE, Batch, BatchGroup, BatchKind, GroupRow
from solvers.planning.plan import Cost
from solvers.planning.problem import Place

log = logging.getLogger(__name__)

PricedBatch: TypeAlias = tuple[Batch, float]  # with the price at which it is due

TRIES = 32  # groups of GPUs in a cycle, besides those that are known; as many as GPUs in use, if there are more
URGENT_TRIES, MOST_URGENT_TRIES = 16, 64  # the same where a lack is answered
MOST_TRIES = 128
MOST_JOINED = 3  # batches on other GPUs that are made beside the first in the same cycle
MOST_SHIFTED = 3  # GPUs of a batch whose changes block each other
MOST_DRAFTS = 5  # of a batch whose changes block each other
LEAST_SPELLED = 0.005  # of a price; less is written as 0.00


def add_due_batches(
    context: BatchContext, regrets: RegretAccounts, solver: PlanSolver
) -> tuple[Decision, RegretAccounts]:
    """Returns the decision with the batches that are due, and the accounts of those that wait."""
    decision, now = context.decision, context.snapshot.at
    if not context.allows_batches:
        return decision, regrets
    used = len({place for instance in context.plan.instances for place in instance.places})
    least, most = (URGENT_TRIES, MOST_URGENT_TRIES) if context.is_urgent else (TRIES, MOST_TRIES)
    answer = solver.find_batches(
        context.question.problem, context.plan, regrets.groups, tries=max(least, min(most, used)),
        seed=int(now.timestamp()), seconds=context.most_seconds, limit=context.limit,
    )  # fmt: skip
    if answer.outcome is not SolveOutcome.SOLVED:
        log.warning("no_batches", extra={"outcome": answer.outcome, "error": answer.message})
        return decision, regrets
    batches = (*answer.batches, whole) if (whole := context.whole_batch) else answer.batches
    regrets = regrets.measured(now, batches, most_waiting(used), looks_for_whole=context.looks_for_whole)
    due = regrets.due(now)
    for place, batch in enumerate(due[: context.most_rehearsed]):
        if batch.groups == WHOLE and context.whole:
            return context.whole, regrets.made(batch)
        most_price = regrets.most_price(batch, now)
        if possible := _possible(context, batch, most_price, solver):
            others = [(other, regrets.most_price(other, now)) for other in due[place + 1 :]]  # those before are refused
            found, made = _join(context, (batch, most_price), *possible, others, solver)
            for each in made:
                regrets = regrets.made(each)
            words = (decision.message, spell_batches(context, found))
            return replace(found, message="; ".join(filter(None, words))), regrets
        regrets = regrets.refused(batch)
    return decision, regrets


def _join(
    context: BatchContext, first: PricedBatch, found: Decision, groups: GroupRow, others: Iterable[PricedBatch],
    solver: BatchMaker,
) -> tuple[Decision, list[Batch]]:  # fmt: skip
    """Returns the decision with a few more batches on other GPUs, and the batches that are made.

    In a large fleet several are due at once, and while the rollout of a single one goes on the others would wait.
    """
    made = [first[0]]
    most_price, tried = first[1], 0
    for batch, price in others:
        if tried == MOST_JOINED:
            break
        if not all(batch.places.isdisjoint(each.places) for each in made):
            continue
        tried += 1
        both = decide_with_batches(context, (*groups, *batch.groups), solver)
        gain_per_hour = sum(each.gain_per_hour for each in (*made, batch))
        if both and _is_cheaper(both, found) and _is_due(context, gain_per_hour, both, most_price + price):
            made, most_price, found = [*made, batch], most_price + price, both
            groups = (*groups, *batch.groups)
    return found, made


def _is_cheaper(decision: Decision, other: Decision) -> bool:
    if decision.verdict is None or other.verdict is None:
        return False
    return decision.verdict.cost.total < other.verdict.cost.total


def _possible(
    context: BatchContext, batch: Batch, most_price: float, solver: BatchMaker
) -> tuple[Decision, GroupRow] | None:
    """Returns the decision with as much of a batch as has an order of steps, and that; None if nothing is left.

    In a full group of GPUs each change waits for room that another change holds. On an empty GPU nothing waits: what a
    few blocked GPUs shall run goes to empty ones. Of many, the groups that they belong to are left out.
    """
    groups, shifts = batch.groups, MOST_SHIFTED
    for _ in range(MOST_DRAFTS):
        found = write_batches(context, groups, solver) if groups else None
        if found is None:
            return None
        waiting = find_blocked_changes(context, found)
        if not waiting:
            found = judge_batches(context, found)
            is_due = found and (groups == batch.groups or _is_due(context, batch.gain_per_hour, found, most_price))
            return (found, groups) if found and is_due else None
        blocked = find_blocked_places(context.snapshot, found, waiting)
        if not blocked:
            return None
        if len(blocked) <= shifts:
            groups = (*groups, BatchGroup((blocked[0],), BatchKind.SHIFTED))
            shifts -= 1
        else:
            groups = tuple(group for group in groups if not {*group.places} & {*blocked})
    return None


def _is_due(context: BatchContext, gain_per_hour: float, found: Decision, most_price: float) -> bool:
    """Returns whether the price is within the part of what the gain may cost that belongs to what is saved."""
    if found.verdict is None or found.value is None:
        return False
    saved = context.cost - found.verdict.cost.total
    price = found.value.churn - context.churn + effort(context.question, found.plan.changes) - context.effort
    return price <= most_price * min(1.0, saved / gain_per_hour)


def find_blocked_places(snapshot: Snapshot, found: Decision, waiting: Iterable[WaitingChange]) -> list[Place]:
    """Returns the GPUs on which copies wait for room, first those with most of them."""
    todo = {change.id: change for change in changes(snapshot.assignments, found.desired)}
    blocked = Counter(todo[entry.instance].place for entry in waiting if todo[entry.instance].takes_room)
    return sorted(blocked, key=lambda place: (-blocked[place], place))


def spell_batches(context: BatchContext, found: Decision) -> str:
    """Returns what the batches of a decision save, beside the decision without them, and the churn that they add."""
    before, after = context.costs, found.verdict.cost if found.verdict else context.costs
    churn = found.value.churn - context.churn if found.value else 0.0
    price = f"making it costs {churn:.2f} once" if churn >= LEAST_SPELLED else "making it costs nothing"
    is_alone = context.decision.desired == context.snapshot.in_force
    compared = "" if is_alone else "compared with only following the load, "
    return f"{compared}a batch of moves {spell_gain(before, after)}; {price}"


def spell_gain(before: Cost, after: Cost) -> str:
    """Returns what is gained; penalties are no money, so requests that are not served have words of their own."""
    saved = before.resource - after.resource
    money = f"saves {saved:.2f} an hour" if saved >= 0 else f"costs {-saved:.2f} an hour more"
    if before.unserved > after.unserved:
        return f"serves more requests, and {money}"
    return f"{money}, and serves fewer requests" if before.unserved < after.unserved else money
