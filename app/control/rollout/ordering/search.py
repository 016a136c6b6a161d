"""Searches beyond the next step for an order of changes that block each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import attrgetter

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import Shortfall
from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.capacity import Counted
from app.control.rollout.changes import NOTHING, ChangeKind, InstanceChange, job_starts
from app.control.rollout.clocks import raise_settings
from app.control.rollout.ordering.at_once import AT_ONCE
from app.control.rollout.ordering.queue import usually
from app.control.rollout.room import shortfall_on
from app.control.rollout.rules import RolloutRules, RolloutState
from app.control.rollout.scene import Scene

MOST_CHANGES = 40  # that block each other; larger groups keep the usual order
MOST_LOOKS = 30_000


def search(part: Sequence[InstanceChange], start: Desired, goal: Desired, rules: RolloutRules) -> list[str] | None:
    """Returns an order in which each change finds room and leaves capacity; None if none was found.

    `start` and `goal` are those that `narrowed` gives for the part.
    """
    start = {node: _fast(wanted, goal.get(node)) for node, wanted in start.items()}
    todo = usually(part)
    knot = Knot(start, goal, rules, todo)
    return None if knot.is_hopeless() else _deeper(knot, todo, {}, _Looks(), set())


def narrow_to_parts(desired: Desired, parts: Sequence[Sequence[InstanceChange]]) -> list[dict[str, NodeDesired]]:
    """Returns, for each part, the assignments that matter to it: on its GPUs, and of its services."""
    of: dict[object, int] = {}
    for number, part in enumerate(parts):
        for change in part:
            of |= dict.fromkeys((*change.places, change.owner), number)
    lines: list[dict[str, list[AssignedInstance]]] = [{} for _ in parts]
    for node, wanted in desired.items():
        for instance in wanted.instances:
            near = {of.get((node, gpu), -1) for gpu in instance.all_gpus} | {of.get(instance.owner, -1)}
            for mine in near - {-1}:
                lines[mine].setdefault(node, []).append(instance)
    for number, part in enumerate(parts):
        for change in part:
            lines[number].setdefault(change.node, [])
    return [
        {node: replace(desired.get(node, NOTHING), instances=tuple(found)) for node, found in those.items()}
        for those in lines
    ]


class _Looks:
    """The number of changes that the search may still check."""

    remaining = MOST_LOOKS


class Knot(Scene):
    """A scene in which a change is made as if its node had applied it, and is taken back where it leads nowhere.

    What is found of a change depends on its node, its service, and for a job on all of the job's changes. So it holds
    until one of these is changed; a search looks at thousands of changes, and finds nearly all of it known.
    """

    def __init__(self, start: Desired, goal: Desired, rules: RolloutRules, part: Sequence[InstanceChange]) -> None:
        super().__init__(start, goal, RolloutState(), AT_ONCE, rules, part, 0.0)
        self.near = {change.id: _near(change, part) for change in part}
        self._rates = _rates_of(start, part)
        self._rooms: dict[tuple[object, ...], Shortfall | None] = {}  # by a change and what is on its GPU
        self._counted: list[Counted | None] = []  # before each change that was made

    def room_for(self, change: InstanceChange, without: str = "") -> Shortfall | None:
        key = (change.id, without, *(id(line) for place in change.places for line in self._holding[place]))
        if key not in self._rooms:
            self._rooms[key] = super().room_for(change, without)
        return self._rooms[key]

    def is_hopeless(self) -> bool:
        """Returns whether some change is impossible in every order.

        It assumes the best: what stops frees its room but takes no capacity, and what starts brings capacity but takes
        no room. A change that is impossible even then needs no search, which would try thousands of orders.
        """
        if any(change.instance.job for change in self.all):
            return False
        left, gone = list(self.all), set[str]()
        gained: dict[str, float] = defaultdict(float)
        while left:
            possible = [change for change in left if self._could_be_made(change, gone, gained[change.owner])]
            if not possible:
                return True
            for change in possible:
                if change.kind in (ChangeKind.STOP, ChangeKind.RESHAPE):
                    gone.add(change.id)
                if change.after:
                    more = change.after.rate_per_second - (self.ledger.now.get(change.id) or 0.0)
                    gained[change.owner] += max(0.0, more)
            left = [change for change in left if change not in possible]
        return False

    def _could_be_made(self, change: InstanceChange, gone: Collection[str], gained: float) -> bool:
        """Returns whether a service's change could be made once these copies are gone and so much rate was gained."""
        if change.takes_room:
            limits = self._limits(change.node)
            there = [line for line in self._holding[change.place] if line.id == change.id or line.id not in gone]
            if limits is None or shortfall_on(limits, change.instance, there):
                return False
        carries = self.ledger.now.get(change.id)
        if change.before is None or carries is None:
            return True
        after = change.after.rate_per_second if change.after else 0.0
        return self.ledger.could_spare(change.owner, max(0.0, carries - after), gained)

    def apply(self, change: InstanceChange) -> None:
        """Makes the change at once."""
        del self.todo[change.id]
        self._counted.append(self.ledger.counted(change.owner, change.id) if change.instance.service else None)
        self._set(change, change.after)
        self._count(change, -1)
        if change.instance.service:
            rates = self._rates[change.owner]
            rates[change.id] = change.after.rate_per_second if change.after else 0.0
            self.ledger.recount(change.owner, change.id, rates, is_there=change.after is not None)

    def take_back(self, change: InstanceChange) -> None:
        """Takes back the change that was made last."""
        self.todo[change.id] = change
        self._set(change, change.before)
        self._count(change, 1)
        if counted := self._counted.pop():
            self._rates[change.owner][change.id] = change.before.rate_per_second if change.before else 0.0
            self.ledger.restore(change.owner, change.id, counted)

    def _set(self, change: InstanceChange, instance: AssignedInstance | None) -> None:
        for place in change.places:
            there = [line for line in self._holding[place] if line.id != change.id]
            self._holding[place] = sorted([*there, instance], key=attrgetter("id")) if instance else there
        if change.instance.job and change.kind in (ChangeKind.START, ChangeKind.STOP):
            self._jobs[change.owner] += 1 if instance else -1

    def _count(self, change: InstanceChange, more: int) -> None:
        """Counts a change more or less among those to come."""
        if change.takes_room and change.instance.service:
            self._coming.update(dict.fromkeys(change.places, more))
        if change.instance.job:
            self._job_starts = job_starts([other for other in self.all if other.id in self.todo])


def _rates_of(start: Desired, part: Sequence[InstanceChange]) -> dict[str, dict[str, float]]:
    """Returns, by service of these changes, the rates of all its copies in the order in which a ledger adds them up.

    Copies to come have their places in it, and carry 0 until they start: that changes no sum.
    """
    services = {change.owner for change in part if change.instance.service}
    nodes = {node: number for number, node in enumerate(start)}
    lines = [(nodes[node], line.id, line) for node, wanted in start.items() for line in wanted.instances]
    lines += [(nodes[change.node], change.id, change.instance) for change in part if change.kind is ChangeKind.START]
    rates: dict[str, dict[str, float]] = {service: {} for service in services}
    for _, id_, line in sorted(lines, key=lambda entry: entry[:2]):
        if line.owner in services:
            rates[line.owner][id_] = line.rate_per_second
    for change in part:
        if change.kind is ChangeKind.START and change.owner in services:
            rates[change.owner][change.id] = 0.0
    return rates


def _near(change: InstanceChange, part: Sequence[InstanceChange]) -> frozenset[str]:
    """Returns the changes of which something else may be found once this one is made."""
    found = [other for other in part if other.node == change.node or other.owner == change.owner]
    jobs = {other.owner for other in found if other.instance.job}
    return frozenset([*(other.id for other in found), *(other.id for other in part if other.owner in jobs)])


def _deeper(
    knot: Knot, todo: list[InstanceChange], known: dict[str, bool], looks: _Looks, tried: set[frozenset[str]]
) -> list[str] | None:
    """Returns an order of the changes that are left. `known`: whether they are possible, as far as that was found."""
    if not todo:
        return []
    mark = frozenset([change.id for change in todo])
    if mark in tried:
        return None
    tried.add(mark)
    for change in todo:
        looks.remaining -= 1
        if looks.remaining < 0:
            return None
        is_possible = known.get(change.id)
        if is_possible is None:
            is_possible = known[change.id] = knot.obstacle(change) is None
        if not is_possible:
            continue
        near = knot.near[change.id]
        knot.apply(change)
        rest = [other for other in todo if other is not change]
        found = _deeper(knot, rest, {id_: fact for id_, fact in known.items() if id_ not in near}, looks, tried)
        if found is not None:
            return [change.id, *found]
        knot.take_back(change)
    return None


def _fast(assigned: NodeDesired, target: NodeDesired | None) -> NodeDesired:
    """Returns the node with its clocks raised: that comes first, so it blocks nothing."""
    was = {gpu.index: gpu for gpu in assigned.gpus}
    shall = {gpu.index: gpu for gpu in (target or NOTHING).gpus}
    gpus = tuple(raise_settings(gpu, shall.get(index, gpu)) for index, gpu in was.items())
    return replace(assigned, gpus=gpus)
