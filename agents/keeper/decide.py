"""What to start and what to take down, from what is wanted and what is there. Nothing is touched here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agents.contract import AssignedInstance
from agents.fits import GpuRules, Shortfall
from agents.keeper.copies import NodeCopy, Stage, same_process_serves
from agents.keeper.room import missing


@dataclass(frozen=True, slots=True)
class WantedInstance:
    """An instance of the assignment, and the GPU that its index means here; empty where it means none."""

    instance: AssignedInstance
    gpu: str


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """What decides beside the copies themselves."""

    memory_gib: Mapping[str, float]  # by GPU
    fenced: Mapping[str, str] = field(default_factory=dict)  # why nothing may start there
    recycled: Collection[str] = ()  # every copy must leave
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # instance: why its template cannot be filled
    resting: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # instance: why it failed, tried again later
    stopped_jobs: Collection[str] = ()  # instances that made room for services
    contact: bool = True  # whether the control plane is heard
    established: Collection[str] = ()  # instances that have been ready here, as they are wanted now


@dataclass(frozen=True, slots=True)
class Start:
    """Bring up a copy."""

    wanted: WantedInstance


@dataclass(frozen=True, slots=True)
class TakeDown:
    """Drain a copy and end it."""

    copy: str
    reason: str


@dataclass(frozen=True, slots=True)
class HeldStart:
    """Not done, and why."""

    instance: str
    missing: Shortfall


@dataclass(frozen=True, slots=True)
class CopyDecision:
    """What to do now. Deciding again when it is done may find more."""

    start: tuple[Start, ...] = ()
    take_down: tuple[TakeDown, ...] = ()
    held: tuple[HeldStart, ...] = ()


def decide(
    wanted: Sequence[WantedInstance], copies: Collection[NodeCopy], node: NodeConstraints, rules: GpuRules
) -> CopyDecision:
    """The next moves towards `wanted`; the copies are those that are not gone."""
    by_instance: dict[str, list[NodeCopy]] = {}
    for copy in copies:
        by_instance.setdefault(copy.instance, []).append(copy)
    take_down = _take_down(wanted, copies, by_instance, node)
    leaving = {going.copy for going in take_down} | _succeeded(wanted, by_instance)
    there = list(copies)  # and, at the end, what is started in this very decision
    start: list[Start] = []
    held: list[HeldStart] = []
    for one in sorted(wanted, key=lambda one: not one.instance.service):  # services first
        mine = by_instance.get(one.instance.id, [])
        if right_copy(one, mine) or one.instance.id in node.stopped_jobs:
            continue
        lacking = _obstacle(one, mine, there, leaving, node, rules)
        if lacking is None:
            start.append(Start(one))
            there.append(NodeCopy("", one.instance, one.gpu))
        elif lacking is not WAIT:
            held.append(HeldStart(one.instance.id, lacking))
    return CopyDecision(tuple(start), tuple(take_down), tuple(held))


def right_copy(one: WantedInstance, mine: Collection[NodeCopy]) -> NodeCopy | None:
    """The copy that is what is wanted, or becomes it."""
    for copy in mine:
        if copy.rising and copy.gpu == one.gpu and same_process_serves(copy, one.instance):
            return copy
    return None


def _succeeded(wanted: Sequence[WantedInstance], by_instance: Mapping[str, Collection[NodeCopy]]) -> set[str]:
    """Copies whose successor is on its way: what they hold comes free by itself."""
    found = set()
    for one in wanted:
        mine = by_instance.get(one.instance.id, ())
        right = right_copy(one, mine)
        if right is not None:
            found |= {copy.id for copy in mine if copy is not right}
    return found


WAIT = Shortfall("wait", "")


def _obstacle(
    one: WantedInstance,
    mine: Collection[NodeCopy],
    copies: Collection[NodeCopy],
    leaving: Collection[str],
    node: NodeConstraints,
    rules: GpuRules,
) -> Shortfall | None:
    """Why a copy of `one` cannot be started now; WAIT where time alone will tell."""
    name = one.instance.id
    if not one.gpu:
        return Shortfall("no_gpu", f"there is no GPU {one.instance.gpu} on this node")
    if one.gpu in node.fenced:
        return Shortfall("gpu_fenced", f"GPU {one.instance.gpu} takes nothing new: {node.fenced[one.gpu]}")
    if name in node.refused:
        return Shortfall(*node.refused[name])
    if name in node.resting:
        return Shortfall(*node.resting[name])
    if one.gpu in node.recycled:
        return Shortfall("gpu_recycled", f"GPU {one.instance.gpu} is emptied, and its MPS daemon is started anew")
    if not (node.contact or name in node.established):
        return WAIT  # without contact nothing new is started; what has died is started again (I4)
    if mine and not one.instance.service:
        return WAIT  # a second copy of a job would start from where the first has not yet saved
    memory_gib = node.memory_gib.get(one.gpu, 0.0)
    there = [copy for copy in copies if copy.gpu == one.gpu]
    lacking = missing(one.instance, memory_gib, there, rules)
    if lacking is not None:
        staying = [copy for copy in there if copy.rising and (copy.id not in leaving or copy.instance == name)]
        return lacking if missing(one.instance, memory_gib, staying, rules) else WAIT
    replacing = any(copy.instance == name for copy in there)
    return WAIT if replacing and _handing_over(there, name) else None


def _handing_over(there: Collection[NodeCopy], but: str) -> bool:
    """Whether another instance has two copies on this GPU: one hand-over at a time."""
    names = [copy.instance for copy in there if copy.instance != but]
    return len(names) != len(set(names))


def _take_down(
    wanted: Sequence[WantedInstance],
    copies: Collection[NodeCopy],
    by_instance: Mapping[str, Collection[NodeCopy]],
    node: NodeConstraints,
) -> list[TakeDown]:
    """What must go, and what is not wanted any more once what replaces it is ready."""
    by_id = {one.instance.id: one for one in wanted}
    coming = _services_coming(wanted, by_instance, node)
    going = []
    for copy in copies:
        one = by_id.get(copy.instance)
        serving = copy.served and copy.stage is Stage.READY
        if not copy.rising:
            continue
        if copy.gpu in node.recycled:
            going.append(TakeDown(copy.id, "gpu_recycled"))
        elif copy.instance in node.stopped_jobs:
            going.append(TakeDown(copy.id, "made_room"))
        elif not node.contact:
            continue  # both copies of an unfinished hand-over stay (I4)
        elif one is None:
            if not (serving and copy.service in coming):
                going.append(TakeDown(copy.id, "not_wanted"))
        else:
            right = right_copy(one, by_instance[copy.instance])
            if right is not copy and (not serving or (right is not None and right.stage is Stage.READY)):
                going.append(TakeDown(copy.id, "replaced"))
    return going


def _services_coming(
    wanted: Sequence[WantedInstance], by_instance: Mapping[str, Collection[NodeCopy]], node: NodeConstraints
) -> frozenset[str]:
    """Services with an instance here that is on its way: theirs that are to go wait for it."""
    return frozenset(
        one.instance.owner
        for one in wanted
        if one.instance.service
        and one.instance.id not in node.refused
        and not any(copy.stage is Stage.READY for copy in by_instance.get(one.instance.id, ()))
    )
