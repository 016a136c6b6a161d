"""Finds, before anything is recorded, an order of steps that starts copies before it stops others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from agents.contract.fits import Shortfall
from app.control.domain.decision import HeldBackChange
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.events import Reason
from app.control.rollout.changes import ChangeKind, InstanceChange, changes, components
from app.control.rollout.keeping import keep_owners
from app.control.rollout.ordering.at_once import AT_ONCE
from app.control.rollout.ordering.rehearsal import Rehearsal, rehearse
from app.control.rollout.ordering.search import MOST_CHANGES, narrow_to_parts, search
from app.control.rollout.room import GpuLimits, is_over_full, shortfall_on
from app.control.rollout.rules import RolloutOrder, RolloutRules, RolloutState, WaitingChange
from app.control.rollout.scene import Scene

GENTLE_ROUNDS = 3  # that hold back only changes that lack room themselves; after them all others are held back too


def order(assigned: Desired, target: Desired, rules: RolloutRules) -> RolloutOrder:
    """Returns the order of changes from the assignments to the target; stuck instances stay as assigned."""
    rules = replace(rules, unproven=frozenset())
    held: dict[str, HeldBackChange] = {}
    goal: Desired = _possible(assigned, target, held, rules)
    turn = 0
    while True:
        rehearsal = rehearse(assigned, goal, rules)
        if rehearsal.waiting:
            rehearsal = _search_order(assigned, goal, rules, rehearsal)
        if not rehearsal.waiting:
            return RolloutOrder(tuple(held.values()), goal, _worth_keeping(assigned, goal, rehearsal.made))
        turn += 1
        held |= {change.service: change for change in _stuck(goal, rehearsal, rules, turn > GENTLE_ROUNDS)}
        goal = _possible(assigned, target, held, rules)


def find_blocked(assigned: Desired, target: Desired, rules: RolloutRules) -> tuple[WaitingChange, ...]:
    """Returns what still waits after a rehearsal; nothing if that, or a search beyond it, leads to the whole target."""
    rules = replace(rules, unproven=frozenset())
    rehearsal = rehearse(assigned, target, rules)
    leads = not rehearsal.waiting or not _search_order(assigned, target, rules, rehearsal, only_all=True).waiting
    return () if leads else rehearsal.waiting


def _search_order(
    assigned: Desired, target: Desired, rules: RolloutRules, rehearsal: Rehearsal, *, only_all: bool = False
) -> Rehearsal:
    """Returns a rehearsal in which a search beyond the next step frees stuck changes, if it finds a way.

    With `only_all` it gives up once some of them stay stuck: knots do not wait for each other, so no other way helps.
    """
    stuck = {waiting.instance for waiting in rehearsal.waiting}
    parts = [part for part in components(changes(assigned, target)) if any(change.id in stuck for change in part)]
    knots = [part for part in parts if len(part) <= MOST_CHANGES]
    if only_all and len(knots) < len(parts):
        return rehearsal
    found: dict[str, list[str]] = {}
    for part, start, goal in zip(knots, narrow_to_parts(assigned, knots), narrow_to_parts(target, knots), strict=True):
        way = search(part, start, goal, rules)
        if way is None and only_all:
            return rehearsal
        if way is not None:
            found |= dict.fromkeys((change.id for change in part), way)
    if not found:
        return rehearsal
    sequence = [id_ for id_ in rehearsal.made if id_ not in found]
    sequence += [id_ for way in {id(way): way for way in found.values()}.values() for id_ in way]
    other = rehearse(assigned, target, rules, sequence)
    return other if len(other.waiting) < len(rehearsal.waiting) else rehearsal


def _worth_keeping(assigned: Desired, target: Desired, made: Sequence[str]) -> tuple[str, ...]:
    """Returns the part of the order that matters: several changes take room on a GPU in use, or give up capacity."""
    todo = {change.id: change for change in changes(assigned, target)}
    kinds = (ChangeKind.STOP, ChangeKind.RESHAPE)
    crowded = {place for change in todo.values() if change.kind in kinds for place in change.places}
    gives: dict[str, int] = {}
    for change in todo.values():
        if change.kind is not ChangeKind.START:
            gives[change.owner] = gives.get(change.owner, 0) + 1

    def matters(change: InstanceChange) -> bool:
        return (
            not crowded.isdisjoint(change.places)
            if change.kind is ChangeKind.START
            else (change.kind is ChangeKind.RESHAPE or gives[change.owner] > 1)
        )

    return tuple(id_ for id_ in made if id_ in todo and matters(todo[id_]))


def _stuck(goal: Desired, rehearsal: Rehearsal, rules: RolloutRules, all_of_it: bool) -> list[HeldBackChange]:
    """Returns the changes to hold back: at first only those without room, since the rest may then be possible."""
    here = rehearsal.reached
    todo = {change.id: change for change in changes(here, goal)}
    scene = Scene(here, goal, RolloutState(), AT_ONCE, rules, list(todo.values()), 0.0)
    lacking: dict[str, list[Shortfall]] = {}
    others: dict[str, str] = {}
    for waiting in rehearsal.waiting:
        change = todo.get(waiting.instance)
        found = scene.room_for(change) if change and change.takes_room else None
        if found:
            lacking.setdefault(waiting.owner, []).append(found)
        else:
            others.setdefault(waiting.owner, waiting.message)
    held = [
        _held(owner, min(found, key=lambda lacks: (lacks.memory_gib, lacks.sm_percent)))
        for owner, found in lacking.items()
    ]
    if all_of_it or not held:
        held += [
            HeldBackChange(owner, Reason.NO_ROOM_TO_HAND_OVER, f"no other change can make room first: {message}")
            for owner, message in others.items()
            if owner not in lacking
        ]
    return held


def _held(owner: str, lacks: Shortfall) -> HeldBackChange:
    return HeldBackChange(owner, Reason.NO_ROOM_TO_HAND_OVER, lacks.message, lacks.sm_percent, lacks.memory_gib)


def _possible(assigned: Desired, target: Desired, held: dict[str, HeldBackChange], rules: RolloutRules) -> Desired:
    """Returns the target without held-back changes, and without changes whose place then stays taken."""
    while True:
        goal = keep_owners(target, assigned, held) if held else target
        added = {crowded.service: crowded for crowded in _list_crowded_out(assigned, goal, held, rules)}
        if not added:
            return goal
        held |= added


def _list_crowded_out(
    assigned: Desired, goal: Desired, held: Collection[str], rules: RolloutRules
) -> Iterator[HeldBackChange]:
    """Yields the owners of arrivals on GPUs that cannot hold them all; jobs give way to services."""
    if not held:
        return
    coming: dict[tuple[str, int], list[InstanceChange]] = {}
    for change in changes(assigned, goal):
        if change.takes_room and change.owner not in held:
            for place in change.places:
                coming.setdefault(place, []).append(change)
    for (node, index), arrivals in sorted(coming.items()):
        wanted: NodeDesired = goal[node]
        gpu = GpuLimits.of(wanted, rules.memory_gib.get(node, 0.0), rules.jobs_per_gpu)
        there = [instance for instance in wanted.instances if index in instance.all_gpus]
        if not is_over_full(there, gpu):
            continue
        jobs = [change for change in arrivals if change.instance.job]
        without_jobs = [instance for instance in there if instance not in [job.instance for job in jobs]]
        for change in jobs if jobs and not is_over_full(without_jobs, gpu) else arrivals:
            staying = [instance for instance in there if instance.owner != change.owner]
            lacks = shortfall_on(gpu, change.instance, staying) or Shortfall(
                "no_room", "what stays there leaves no room"
            )
            yield _held(change.owner, lacks)
