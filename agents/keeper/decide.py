"""Decides which copies to start and which to take down, from the wanted instances and the copies there; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import GpuRules, Shortfall
from agents.keeper.copies import AWAY, BEFORE_ROUTING, DOWN, NodeCopy, Stage, same_process_serves
from agents.keeper.room import missing


@dataclass(frozen=True, slots=True)
class WantedInstance:
    """An instance of the assignment, and the UUID of its GPU; empty if its index means no GPU here."""

    instance: AssignedInstance
    gpu: str
    gpus: tuple[str, ...] = ()  # all of them, where it has several; an empty one among them means no GPU here

    @property
    def devices(self) -> tuple[str, ...]:
        return self.gpus or (self.gpu,)


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The state of the node that decisions depend on, besides its copies."""

    memory_gib: Mapping[str, float]  # by GPU
    fenced: Mapping[str, str] = field(default_factory=dict)  # by GPU: why nothing may start there
    recycled: Collection[str] = ()  # GPUs that every copy must leave
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by instance: why its template is refused
    resting: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by instance: why it waits, or is not retried
    stopped_jobs: Collection[str] = ()  # jobs that made room for services
    contact: bool = True  # the control plane answers
    established: Collection[str] = ()  # instances that have been ready here in their present shape
    swapped: Collection[str] = ()  # jobs whose processes shall wait in host memory
    called_away: Collection[str] = ()  # copies that others end, and that must not wait for their successors any more
    measuring: Collection[str] = ()  # templates whose servers measure what is free on their GPU while they start


@dataclass(frozen=True, slots=True)
class Start:
    """A copy to start."""

    wanted: WantedInstance


@dataclass(frozen=True, slots=True)
class TakeDown:
    """A copy to drain and end."""

    copy: str
    reason: str


@dataclass(frozen=True, slots=True)
class HeldStart:
    """An instance that is not started, and why."""

    instance: str
    missing: Shortfall


@dataclass(frozen=True, slots=True)
class CopyDecision:
    """The next moves."""

    start: tuple[Start, ...] = ()
    take_down: tuple[TakeDown, ...] = ()
    held: tuple[HeldStart, ...] = ()
    swap_out: tuple[str, ...] = ()  # copies that are to move to host memory
    bring_back: tuple[str, ...] = ()  # copies that are to return from there

    @property
    def changes_copies(self) -> bool:
        """Returns whether anything is to be done: a second decision afterwards may find more."""
        return bool(self.start or self.take_down or self.swap_out or self.bring_back)


def decide(
    wanted: Sequence[WantedInstance], copies: Collection[NodeCopy], node: NodeConstraints, rules: GpuRules
) -> CopyDecision:
    """Returns the next moves towards `wanted`; `copies` are those not gone."""
    by_instance: dict[str, list[NodeCopy]] = {}
    for copy in copies:
        by_instance.setdefault(copy.instance, []).append(copy)
    take_down = _take_down(wanted, copies, by_instance, node)
    swap_out = _swap_out(wanted, copies, node)
    leaving = {move.copy for move in take_down} | _list_succeeded(wanted, by_instance) | set(swap_out)
    occupying = list(copies)  # later also the copies that this decision starts
    start: list[Start] = []
    bring_back: list[str] = []
    held: list[HeldStart] = []
    for want in sorted(wanted, key=lambda want: not want.instance.service):  # services first
        own_copies = by_instance.get(want.instance.id, [])
        if right_copy(want, own_copies) or want.instance.id in node.stopped_jobs:
            continue
        lacking = _obstacle(want, own_copies, occupying, leaving, node, rules)
        if lacking is None:
            swapped = [copy.id for copy in own_copies if copy.stage is Stage.SWAPPED]
            if swapped:
                bring_back += swapped
            else:
                start.append(Start(want))
            occupying.append(NodeCopy("", want.instance, want.gpu, gpus=want.gpus))
        elif lacking is not WAIT:
            held.append(HeldStart(want.instance.id, lacking))
    return CopyDecision(tuple(start), tuple(take_down), tuple(held), tuple(swap_out), tuple(bring_back))


def right_copy(want: WantedInstance, own_copies: Collection[NodeCopy]) -> NodeCopy | None:
    """Returns the copy that serves the wanted instance, or will once it has started."""
    for copy in own_copies:
        if copy.rising and _takes(copy, want):
            return copy
    return None


def _takes(copy: NodeCopy, want: WantedInstance) -> bool:
    """Returns whether the copy's process can be what is wanted."""
    return copy.devices == want.devices and same_process_serves(copy, want.instance)


def _list_succeeded(wanted: Sequence[WantedInstance], by_instance: Mapping[str, Collection[NodeCopy]]) -> set[str]:
    """Returns copies whose successor is starting; what they hold comes free by itself."""
    found = set()
    for want in wanted:
        own_copies = by_instance.get(want.instance.id, ())
        right = right_copy(want, own_copies)
        if right is not None:
            found |= {copy.id for copy in own_copies if copy is not right}
    return found


WAIT = Shortfall("wait", "")


def _obstacle(
    want: WantedInstance,
    own_copies: Collection[NodeCopy],
    copies: Collection[NodeCopy],
    leaving: Collection[str],
    node: NodeConstraints,
    rules: GpuRules,
) -> Shortfall | None:
    """Returns why the wanted copy cannot start now; WAIT if it only has to wait."""
    name = want.instance.id
    for index, gpu in zip(want.instance.all_gpus, want.devices, strict=True):
        if not gpu:
            return Shortfall("no_gpu", f"this node has no GPU {index}")
        if gpu in node.fenced:
            return Shortfall("gpu_fenced", f"GPU {index} is fenced: {node.fenced[gpu]}")
    if name in node.refused:
        return Shortfall(*node.refused[name])
    if name in node.resting:
        return Shortfall(*node.resting[name])
    for index, gpu in zip(want.instance.all_gpus, want.devices, strict=True):
        if gpu in node.recycled:
            return Shortfall("gpu_recycled", f"GPU {index} is being emptied to restart its MPS daemon")
    if not (node.contact or name in node.established):
        return WAIT  # without contact only instances that were ready here before are started again (I4)
    if not want.instance.service and not all(copy.stage is Stage.SWAPPED and _takes(copy, want) for copy in own_copies):
        return WAIT  # a second copy of a job would start before the first has saved its progress
    found = [_no_room(want, gpu, copies, leaving, node, rules) for gpu in want.devices]
    return next((lacking for lacking in found if lacking not in (None, WAIT)), WAIT if WAIT in found else None)


def _no_room(
    want: WantedInstance,
    gpu: str,
    copies: Collection[NodeCopy],
    leaving: Collection[str],
    node: NodeConstraints,
    rules: GpuRules,
) -> Shortfall | None:
    """Returns what the wanted copy lacks on one of its GPUs; WAIT if it will have it once others have left."""
    name = want.instance.id
    memory_gib = node.memory_gib.get(gpu, 0.0)
    on_gpu = [copy for copy in copies if gpu in copy.devices and copy.stage is not Stage.SWAPPED]
    lacking = missing(want.instance, memory_gib, on_gpu, rules)
    if lacking is not None:
        staying = [copy for copy in on_gpu if copy.rising and (copy.id not in leaving or copy.instance == name)]
        return lacking if missing(want.instance, memory_gib, staying, rules) else WAIT
    replaced = [copy for copy in on_gpu if copy.instance == name]
    if len(replaced) > 1:
        return WAIT  # a hand-over has two copies: one that failed is gone before the next starts
    if replaced and _handing_over(on_gpu, name):
        return WAIT
    return WAIT if _measuring(want, on_gpu, node) else None


def _measuring(want: WantedInstance, on_gpu: Collection[NodeCopy], node: NodeConstraints) -> bool:
    """Returns whether another copy starts on this GPU, and one of the two would take the other's memory for its own."""
    starting = {copy.wanted.template for copy in on_gpu if copy.stage in BEFORE_ROUTING}
    return bool(starting) and not {*starting, want.instance.template}.isdisjoint(node.measuring)


def _handing_over(on_gpu: Collection[NodeCopy], but: str) -> bool:
    """Returns whether another instance has two copies on this GPU: only one hand-over runs at a time."""
    names = [copy.instance for copy in on_gpu if copy.instance != but]
    return len(names) != len(set(names))


def _take_down(
    wanted: Sequence[WantedInstance],
    copies: Collection[NodeCopy],
    by_instance: Mapping[str, Collection[NodeCopy]],
    node: NodeConstraints,
) -> list[TakeDown]:
    """Returns copies that must leave now, and unwanted copies whose replacement is ready."""
    by_name = {want.instance.id: want for want in wanted}
    coming = _services_coming(wanted, by_instance, node)
    taken_down = []
    for copy in copies:
        want = by_name.get(copy.instance)
        serving = copy.served and copy.stage is Stage.READY
        if copy.stage in DOWN:
            continue
        if why := _why_at_once(copy, node):
            taken_down.append(TakeDown(copy.id, why))
        elif _shall_wait(copy, want, node):
            continue
        elif copy.instance in node.stopped_jobs and copy.rising:
            taken_down.append(TakeDown(copy.id, "made_room"))
        elif not node.contact:
            continue  # both copies of an unfinished hand-over stay (I4)
        elif want is None:
            if not (serving and copy.service in coming):
                taken_down.append(TakeDown(copy.id, "not_wanted"))
        elif copy.stage in AWAY:
            if not _takes(copy, want):
                taken_down.append(TakeDown(copy.id, "replaced"))
        else:
            right = right_copy(want, by_instance[copy.instance])
            if right is not copy and (not serving or (right is not None and right.stage is Stage.READY)):
                taken_down.append(TakeDown(copy.id, "replaced"))
    return taken_down


def _why_at_once(copy: NodeCopy, node: NodeConstraints) -> str:
    """Returns why a copy must leave whatever is assigned; empty where it need not."""
    if any(gpu in node.recycled for gpu in copy.devices):
        return "gpu_recycled"
    return "called_away" if copy.id in node.called_away else ""


def _swap_out(wanted: Sequence[WantedInstance], copies: Collection[NodeCopy], node: NodeConstraints) -> list[str]:
    """Returns running copies of jobs that move to host memory now."""
    by_name = {want.instance.id: want for want in wanted}
    return [
        copy.id
        for copy in copies
        if copy.stage is Stage.READY
        and not any(gpu in node.recycled for gpu in copy.devices)
        and _shall_wait(copy, by_name.get(copy.instance), node)
    ]


def _shall_wait(copy: NodeCopy, want: WantedInstance | None, node: NodeConstraints) -> bool:
    """Returns whether the copy is of a job that shall wait in host memory, and can; one that starts cannot yet.

    A job on several GPUs cannot: what is left of it there would keep MPS from opening them.
    """
    terms = copy.wanted.terms
    if terms is None or not terms.swaps or copy.gpus or copy.stage not in (Stage.READY, Stage.RETURNING, *AWAY):
        return False
    if want is None:
        return node.contact and copy.instance in node.swapped
    return copy.instance in node.stopped_jobs and _takes(copy, want)


def _services_coming(
    wanted: Sequence[WantedInstance], by_instance: Mapping[str, Collection[NodeCopy]], node: NodeConstraints
) -> frozenset[str]:
    """Returns services with an instance starting here; their unwanted copies stay until it is ready."""
    return frozenset(
        want.instance.owner
        for want in wanted
        if want.instance.service
        and want.instance.id not in node.refused
        and not any(copy.stage is Stage.READY for copy in by_instance.get(want.instance.id, ()))
    )
