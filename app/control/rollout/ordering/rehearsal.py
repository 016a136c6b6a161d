"""Rehearses `advance` on a fleet that applies every assignment at once.

Fleets are large, so a round checks only what the round before it touched: a change that waits for room on a GPU, for
spare capacity of its service or for its node's clocks cannot be made until one of these changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agents.contract.fits import Shortfall
from app.control.domain.desired import Desired
from app.control.rollout.changes import ChangeKind, InstanceChange, changes
from app.control.rollout.making import apply_settings, make, sort_changes, spell_waiting
from app.control.rollout.ordering.at_once import AT_ONCE
from app.control.rollout.rules import RolloutRules, RolloutState, WaitingChange
from app.control.rollout.scene import Scene


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The assignments that were reached, the changes that were made, and those that still wait."""

    reached: Desired  # the whole fleet
    made: tuple[str, ...]
    waiting: tuple[WaitingChange, ...]  # empty if the target was reached


def rehearse(assigned: Desired, target: Desired, rules: RolloutRules, sequence: Sequence[str] = ()) -> Rehearsal:
    """Runs rounds until no further change can be made.

    Changes in the sequence are checked in every round: others wait for them.
    """
    stage = RehearsedScene(assigned, target, rules)
    ranked = frozenset(sequence)
    todo = sort_changes(stage.todo.values(), sequence)
    turn = {change.id: place for place, change in enumerate(todo)}
    order: list[str] = []
    waiting: dict[str, Shortfall | None] = {}
    while True:
        made, waits = make(stage, todo, ranked, waiting)
        waiting |= {change.id: obstacle for change, obstacle in waits}
        reset = stage.set_devices(made)
        if not made and not reset:
            ids = sorted(waiting, key=turn.__getitem__)
            spelled = spell_waiting((stage.todo[id_], waiting[id_]) for id_ in ids)
            return Rehearsal(stage.assigned, tuple(order), spelled)
        order += [change.id for change in made]
        for id_ in stage.touched(made, reset):
            waiting.pop(id_, None)
        stage.done(made)
        free = (stage.todo.keys() - waiting.keys()) | {id_ for id_, obstacle in waiting.items() if obstacle is None}
        todo = [stage.todo[id_] for id_ in sorted(free | ranked & stage.todo.keys(), key=turn.__getitem__)]


class RehearsedScene(Scene):
    """A scene that lasts from round to round."""

    def __init__(self, assigned: Desired, target: Desired, rules: RolloutRules) -> None:
        super().__init__(assigned, target, RolloutState(), AT_ONCE, rules, changes(assigned, target), 0.0)
        self._of_node: dict[str, set[str]] = defaultdict(set)  # changes
        self._of_owner: dict[str, set[str]] = defaultdict(set)
        self._jobs_of: dict[str, str] = {}  # owners of changes of jobs
        for change in self.todo.values():
            self._of_node[change.node].add(change.id)
            self._of_owner[change.owner].add(change.id)
            if change.instance.job:
                self._jobs_of[change.id] = change.owner
        self._due = {node for node in {*assigned, *target} if assigned.get(node) != target.get(node)}

    def set_devices(self, made: Iterable[InstanceChange]) -> set[str]:
        """Sets devices and rules as they may be set now; returns the nodes that changed."""
        under_way = {change.node for change in made}
        busy: dict[str, set[int]] = defaultdict(set)
        for node in self._due | under_way:
            for id_ in self._of_node[node] & self.todo.keys():
                busy[node].update(self.todo[id_].instance.all_gpus)
        for gone in self.leaving.values():
            busy[gone.node].update(gone.instance.all_gpus)
        reset = set()
        for node in sorted(self._due | under_way):
            before = self.assigned.get(node)
            after = apply_settings(self, node, before, busy[node])
            if after != before:
                self.assigned[node] = after
                reset.add(node)
        self._due = under_way  # their devices may be set in the next round
        return reset

    def touched(self, made: Sequence[InstanceChange], reset: Collection[str]) -> set[str]:
        """Returns the changes to check again."""
        found: set[str] = set()
        for node in {*reset, *(change.node for change in made)}:
            found |= self._of_node[node]
        for owner in {change.owner for change in made}:
            found |= self._of_owner[owner]
        for owner in {self._jobs_of[id_] for id_ in found & self._jobs_of.keys()}:
            found |= self._of_owner[owner]  # a job keeps running until its new place is free
        return found

    def done(self, made: Sequence[InstanceChange]) -> None:
        """Applies the assignment: leaving copies have freed their room, started copies serve."""
        self.before = dict(self.assigned)
        for change in made:
            self.pending.pop(change.id, None)
            self.leaving.pop(change.id, None)
            self._of_node[change.node].discard(change.id)
            self._of_owner[change.owner].discard(change.id)
            if change.instance.service and change.after:
                self.ledger.carry(change.owner, change.id, change.after.rate_per_second)
            elif change.kind is ChangeKind.STOP:
                self._jobs[change.owner] -= 1
        for node, gpu in {place for change in made for place in change.places}:
            lines = [line for line in self.assigned[node].instances if gpu in line.all_gpus]
            self._holding[node, gpu] = [copy for line in lines for copy in self._copies(line)]
