"""Finds a sidestep: a few services leave for a few minutes, so that changes that block each other have an order.

In a full fleet the cheaper plan often has no order of steps: each change waits for room that another one holds. One or
two services that move to a GPU where the cheaper plan starts nothing end that; the rest follows with the next plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from app.control.decide.batches import BatchContext, with_batches
from app.control.decide.least_change import MOST_HANDOVERS, handed_over
from app.control.decide.regret import Goal
from app.control.domain.decision import Decision
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.mode import mode_of
from app.control.domain.ports import BatchMaker
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import own_mode
from app.control.rollout import order
from app.control.rollout.changes import ChangeKind, InstanceChange, changes, with_instance
from app.control.rollout.rehearsal import rehearsed
from app.control.rollout.rules import RolloutRules
from app.control.rollout.rules_of import rules_of
from solvers.planning.batches.batch import BatchGroup
from solvers.planning.problem import Place

MOST_MOVERS = 3  # copies of a sidestep
MOST_REHEARSALS = 40
MOST_REHEARSED = 6000  # changes, in all rehearsals
MOST_TRIES = 12  # sets of copies and GPUs that are solved
APART = "(apart)"  # a node that cannot exist
SIDESTEP_HOURS = 0.1  # for which its GPUs are paid: two rollouts


def find_sidestep(context: BatchContext, wanted: Decision, goal: Goal, solver: BatchMaker) -> Decision | None:
    """Returns the plan in force with a few copies moved aside; None if that is not needed, not due, or does not pay.

    `context` holds the decision to change nothing, `wanted` one that is better and has no order of steps.
    """
    is_due = goal.is_due_again or (context.question.falls_short and not goal.spent)
    if not is_due or not _is_worth_a_search(context, wanted):
        return None
    blocked = _Blocked(context.snapshot, wanted.desired)
    for tries, (movers, places) in enumerate(blocked.ways_out()):
        if tries == MOST_TRIES:
            return None
        group = BatchGroup(places, is_solved=True, leaving=tuple(movers))
        found = with_batches(context, (group,), solver)
        if found and _pays(context, found, wanted) and not order(found.desired, wanted.desired, blocked.rules).stuck:
            return replace(found, message=_spell(blocked, movers, wanted))
    return None


def _is_worth_a_search(context: BatchContext, wanted: Decision) -> bool:
    """Returns whether nothing changes although the wanted plan is better, and nothing else stands in its way."""
    snapshot, now = context.snapshot, context.question.value_in_force
    if not context.allows_batches or context.decision.desired != snapshot.in_force:
        return False
    is_better = wanted.value is not None and wanted.value.is_better_than(now)
    is_free = snapshot.resting.keys().isdisjoint(wanted.services)
    if not is_better or not is_free or handed_over(wanted.plan.changes) > MOST_HANDOVERS:
        return False
    # Where a part of it is made and another only proposed or shown, the copies would stay aside.
    own = {
        item.full_name: mode for item in snapshot.declared if item.kind == "Service" and (mode := own_mode(item.spec))
    }
    return len({own.get(owner, mode_of(snapshot)) for owner in wanted.services}) == 1


def _pays(context: BatchContext, found: Decision, wanted: Decision) -> bool:
    """Returns whether the wanted plan still pays with the churn and the GPUs of the sidestep."""
    now, value, goal = context.question.value_in_force, found.value, wanted.value
    if value is None or goal is None or found.verdict is None or value.unserved > now.unserved:
        return False
    if value.per_horizon is None or goal.per_horizon is None or now.per_horizon is None:
        return False
    dearer = max(0.0, found.verdict.cost.total - context.question.verdict.cost.total)
    return goal.per_horizon + 2 * value.churn + dearer * SIDESTEP_HOURS < now.per_horizon


def _spell(blocked: _Blocked, movers: Sequence[str], wanted: Decision) -> str:
    total = wanted.verdict.cost.total if wanted.verdict else 0.0
    names = sorted({blocked.leaving[id_].owner for id_ in movers})
    return f"{', '.join(names)} move aside, so that a plan for {total:.4g} an hour has an order of steps"


@dataclass(frozen=True)
class _Blocked:
    """The changes between the assignments and a plan, some of which block each other."""

    snapshot: Snapshot
    goal: Desired

    @cached_property
    def rules(self) -> RolloutRules:
        return replace(rules_of(self.snapshot.declared), unproven=frozenset())

    @cached_property
    def leaving(self) -> Mapping[str, InstanceChange]:
        """The copies of services that stop or become another process, by id."""
        return {
            change.id: change
            for change in changes(self.snapshot.assignments, self.goal)
            if change.kind in (ChangeKind.STOP, ChangeKind.RESHAPE) and change.instance.service
        }

    def ways_out(self) -> Iterator[tuple[Sequence[str], tuple[Place, ...]]]:
        """Yields copies that may move aside, and the GPUs where they may go."""
        busy = {change.place for change in changes(self.snapshot.assignments, self.goal) if change.takes_room}
        for movers in self._mover_sets():
            for places in self._quiet(busy | {self.leaving[id_].place for id_ in movers}):
                yield movers, places

    def _quiet(self, busy: set[Place]) -> Iterator[tuple[Place, ...]]:
        """Yields GPUs on which the goal starts nothing: those that it frees first, each alone and then together."""
        here = self.snapshot.assignments
        used, kept = _places(here), _places(self.goal)
        jobs = {(node, line.gpu) for node, wanted in here.items() for line in wanted.instances if line.job}
        freed = sorted(used - kept - busy - jobs)
        yield from ((place,) for place in freed)
        if len(freed) > 1:
            yield tuple(freed)
        yield from ((place,) for place in sorted(used & kept - busy - jobs))

    def _mover_sets(self) -> list[list[str]]:
        """Returns sets of copies without which all other changes have an order, those that hold least first."""
        chosen: list[str] = []
        count = len(changes(self.snapshot.assignments, self.goal))
        left = min(MOST_REHEARSALS, MOST_REHEARSED // max(count, 1))
        for _ in range(MOST_MOVERS):
            others = sorted(self.leaving.keys() - set(chosen), key=self._size)[:left]
            tried = [(self._waiting_without([*chosen, id_]), *self._size(id_)) for id_ in others]
            left -= len(tried)
            if found := [[*chosen, id_] for waiting, _, id_ in sorted(tried) if not waiting]:
                return found
            if not tried:
                return []
            chosen.append(min(tried)[2])
        return []

    def _size(self, id_: str) -> tuple[float, str]:
        before = self.leaving[id_].before
        return before.sm_percent if before else 0.0, id_

    def _waiting_without(self, movers: Collection[str]) -> int:
        """Returns how many changes block each other once these copies run on a node apart."""
        here = dict(self.snapshot.assignments)
        apart = []
        for id_ in movers:
            change = self.leaving[id_]
            here[change.node] = with_instance(here[change.node], id_, None)
            if change.before:
                apart.append(msgspec.structs.replace(change.before, id=f"{id_} {APART}"))
        here[APART] = NodeDesired(instances=tuple(apart))
        return len(rehearsed(here, self.goal, self.rules).waiting)


def _places(desired: Desired) -> set[Place]:
    return {(node, line.gpu) for node, wanted in desired.items() for line in wanted.instances}
