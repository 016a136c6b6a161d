"""Finds a sidestep: a few copies move to another GPU, so that changes that block each other have an order of steps.

In a full fleet the cheaper plan often has no order of steps: each change waits for room that another one holds. A few
copies that move to a GPU where the cheaper plan starts nothing end that; the rest follows with the next plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, zip_longest

import msgspec

from app.control.decide.batch_drafts import BatchContext, decide_with_batches
from app.control.decide.decide import modes_of
from app.control.decide.least_change import MOST_HANDOVERS, count_handed_over
from app.control.decide.resting import is_avoided, resting_changes
from app.control.domain.decision import Decision
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.ports import BatchMaker
from app.control.domain.snapshot import Snapshot
from app.control.rollout import has_order
from app.control.rollout.changes import ChangeKind, InstanceChange, changes, put_instance
from app.control.rollout.ordering.rehearsal import rehearse
from app.control.rollout.rules import RolloutRules
from app.control.rollout.rules_of import rules_of
from solvers.planning.batches.batch import BatchGroup, BatchKind
from solvers.planning.problem import Place, Problem

MOST_MOVERS = 3  # copies that move aside
MOST_REHEARSALS = 40
MOST_REHEARSED = 6000  # changes, in all rehearsals
MOST_TRIES = 12  # sets of copies and GPUs that are solved; in a large fleet each takes long
MOST_TRIED = 4000  # instances, in all tries
MOST_EMPTY = 3  # GPUs, the cheapest first
APART = "(apart)"  # a node that cannot exist
SIDESTEP_HOURS = 0.1  # its GPUs are paid this long: two rollouts


def find_sidestep(context: BatchContext, wanted: Decision, solver: BatchMaker) -> Decision | None:
    """Returns the plan in force with a few copies moved aside; None if that is not needed, or does not pay.

    `context` holds the decision to change nothing, `wanted` one that is better and has no order of steps.
    """
    if not _is_worth_a_search(context, wanted):
        return None
    blocked = _BlockedChanges(context.snapshot, context.question.problem, wanted.desired)
    tries = min(MOST_TRIES, MOST_TRIED // max(len(context.plan.instances), 1) + 1)
    for movers, places in islice(blocked.candidates(), tries):
        group = BatchGroup(places, BatchKind.SOLVED, leaving=tuple(movers))
        found = decide_with_batches(context, (group,), solver)
        if (
            found
            and _pays(context, found, wanted)
            and len(modes_of(context.snapshot, {*wanted.services, *found.services})) == 1
            and has_order(found.desired, wanted.desired, blocked.rules)
        ):
            return replace(found, message=_spell(blocked, movers, wanted))
    return None


def _is_worth_a_search(context: BatchContext, wanted: Decision) -> bool:
    """Returns whether nothing changes although the wanted plan is better, and nothing else prevents it."""
    snapshot, now = context.snapshot, context.question.value_in_force
    if not context.allows_batches or snapshot.is_rolling or context.decision.desired != snapshot.in_force:
        return False
    is_better = wanted.value is not None and wanted.value.is_better_than(now)
    # What only saves cost does not start where its service failed lately; what is needed starts there after its rest.
    is_held = bool(resting_changes(snapshot, wanted.desired)) or (
        not context.question.falls_short and is_avoided(snapshot, wanted.desired, snapshot.in_force)
    )
    is_searched = count_handed_over(wanted.plan.changes) <= MOST_HANDOVERS
    # Of more modes only a part would be made, and the copies would stay aside.
    return is_better and not is_held and is_searched and len(modes_of(snapshot, wanted.services)) == 1


def _pays(context: BatchContext, found: Decision, wanted: Decision) -> bool:
    """Returns whether the wanted plan still pays with the churn and the GPUs of the sidestep."""
    now, value, then = context.question.value_in_force, found.value, wanted.value
    if value is None or then is None or found.verdict is None or value.unserved > now.unserved:
        return False
    if value.per_horizon is None or then.per_horizon is None:
        return False
    if now.per_horizon is None:  # the plan in force breaks a rule
        return True
    dearer = max(0.0, found.verdict.cost.total - context.question.verdict.cost.total)
    return then.per_horizon + 2 * value.churn + dearer * SIDESTEP_HOURS < now.per_horizon


def _spell(blocked: _BlockedChanges, movers: Sequence[str], wanted: Decision) -> str:
    total = wanted.verdict.cost.total if wanted.verdict else 0.0
    names = sorted({blocked.leaving[id_].owner for id_ in movers})
    return f"instances of {', '.join(names)} move aside, so that a plan for {total:.4g} an hour has an order of steps"


@dataclass(frozen=True)
class _BlockedChanges:
    """The changes between the assignments and a plan, some of which block each other."""

    snapshot: Snapshot
    problem: Problem
    wanted: Desired

    @cached_property
    def rules(self) -> RolloutRules:
        return rules_of(self.snapshot.declared)

    @cached_property
    def all(self) -> Sequence[InstanceChange]:
        return changes(self.snapshot.assignments, self.wanted)

    @cached_property
    def leaving(self) -> Mapping[str, InstanceChange]:
        """The copies of services that stop or become another process, by id."""
        kinds = (ChangeKind.STOP, ChangeKind.RESHAPE)
        moving = [change for change in self.all if change.kind in kinds and change.instance.service]
        return {change.id: change for change in moving if not change.instance.is_wide}

    def candidates(self) -> Iterator[tuple[Sequence[str], tuple[Place, ...]]]:
        """Yields copies that may move aside, and GPUs where they may go, in turn for each set of copies."""
        sets = self._mover_sets()
        ways = [[(movers, places) for places in self._quiet(movers)] for movers in sets]
        for turn in zip_longest(*ways):
            yield from (way for way in turn if way)

    def _quiet(self, movers: Collection[str]) -> Iterator[tuple[Place, ...]]:
        """Yields GPUs on which the wanted plan starts nothing: those that it frees, empty ones, and others in use."""
        here = self.snapshot.assignments
        used, kept = _places(here), _places(self.wanted)
        lines = [(node, line) for node, wanted in here.items() for line in wanted.instances if line.job]
        jobs = {(node, gpu) for node, line in lines for gpu in line.all_gpus}
        busy = jobs | {place for change in self.all if change.takes_room for place in change.places}
        busy |= {place for id_ in movers for place in self.leaving[id_].places}
        known = {(node.name, gpu) for node in self.problem.nodes.values() for gpu in node.gpus} - busy
        freed = sorted(known & used - kept)
        yield from ((place,) for place in freed)
        if len(freed) > 1:
            yield tuple(freed)
        prices = {place: self.problem.nodes[place[0]].price_per_hour for place in known - used - kept}
        yield from ((place,) for place in sorted(prices, key=lambda place: (prices[place], place))[:MOST_EMPTY])
        yield from ((place,) for place in sorted(known & used & kept))

    def _mover_sets(self) -> list[list[str]]:
        """Returns sets of copies without which all other changes have an order, those that hold least first."""
        chosen: list[str] = []
        left = min(MOST_REHEARSALS, MOST_REHEARSED // max(len(self.all), 1))
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
            here[change.node] = put_instance(here[change.node], id_, None)
            if change.before:
                apart.append(msgspec.structs.replace(change.before, id=f"{id_} {APART}"))
        here[APART] = NodeDesired(instances=tuple(apart))
        return len(rehearse(here, self.wanted, self.rules).waiting)


def _places(desired: Desired) -> set[Place]:
    return {(node, gpu) for node, wanted in desired.items() for line in wanted.instances for gpu in line.all_gpus}
