"""The GPUs that workloads could share: what is left of nodes of a kind beside everything that stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from clusters.bill import Bill
from clusters.estate import ClusterWorkload, Estate, GpuPod, WorkloadName
from clusters.measured import MeasuredLoads
from clusters.savings.arrangement import AlikeNodes
from clusters.savings.floors import (
    HOST,
    budget_floors,
    draw_rules,
    find_obstacle,
    may_move,
)
from clusters.savings.kinds import draw_kinds
from clusters.savings.needs import LoadNeed


@dataclass(frozen=True, slots=True)
class Sharer:
    """A workload whose replicas could share GPUs: what it needs, and what stays of its rules."""

    workload: WorkloadName
    need: LoadNeed
    replicas: int  # now
    gpus_per_replica: float
    least: int  # replicas that stay: by its autoscaler, and by its PodDisruptionBudgets
    is_apart: bool  # each of these on a node of its own


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node, and how many of its GPUs sharers may use."""

    name: str
    gpus: int
    nano_per_hour: int  # that its end saves; 0: it stays, whatever sharers do


@dataclass(frozen=True, slots=True)
class OpenKind:
    """Nodes of one kind with the workloads that stand there and could share GPUs."""

    product: str
    memory_gib: float | None  # of a GPU
    nodes: tuple[OpenNode, ...]
    sharers: tuple[Sharer, ...]
    alike: AlikeNodes  # what it is made of

    @property
    def nano_per_hour(self) -> int:
        """Returns what would be saved if no sharer needed anything."""
        return sum(node.nano_per_hour for node in self.nodes)


@dataclass(frozen=True, slots=True)
class SharedRooms:
    """All kinds of nodes, and why each other scaled workload that holds GPUs stays as it is."""

    kinds: tuple[OpenKind, ...]
    staying: Mapping[WorkloadName, str]


def keep_for_loss(kind: OpenKind, used: Mapping[str, int]) -> set[str]:
    """Returns the nodes that stay for GPUs in use: those, and room in which what stands on any of them starts again.

    A lost node's GPUs find as many that nobody uses on other nodes, so every replica has its place there.
    """
    kept = {node.name for node in kind.nodes if used.get(node.name) or not node.nano_per_hour}
    rest = [node for node in order_nodes(kind.nodes) if node.name not in kept]
    gpus = {node.name: node.gpus for node in kind.nodes}
    while rest:
        free = {name: gpus[name] - used.get(name, 0) for name in kept}
        total = sum(free.values())
        if all(count <= total - free[name] for name, count in used.items()):
            break
        kept.add(rest.pop(0).name)
    return kept


def order_nodes(nodes: Iterable[OpenNode]) -> list[OpenNode]:
    """Returns nodes with room: those that stay anyway, then by what a GPU of theirs costs."""
    return sorted(
        (node for node in nodes if node.gpus), key=lambda node: (node.nano_per_hour / node.gpus, -node.gpus, node.name)
    )


def open_rooms(
    estate: Estate, bill: Bill, measured: MeasuredLoads, needs: Mapping[WorkloadName, LoadNeed | str],
    excluded: Mapping[WorkloadName, str],
) -> SharedRooms:  # fmt: skip
    """Returns the rooms of the estate; `excluded` says why a workload may not be a sharer: empty, it may."""
    sharers: dict[WorkloadName, Sharer] = {}
    staying: dict[WorkloadName, str] = {}
    rules = {}
    for each in estate.workloads:
        need = needs.get(each.name, "no load was measured")
        rules[each.name] = draw_rules(each, estate.pods_of(each.name), estate, need)
        if each.is_scalable and rules[each.name].now:
            found = _read_sharer(estate, each, need) if not excluded.get(each.name) else excluded[each.name]
            if isinstance(found, str):
                staying[each.name] = found
            else:
                sharers[each.name] = found
    kinds = draw_kinds(estate, bill.nodes, rules, measured.passing_gpus)
    return SharedRooms(tuple(_open(estate, kinds, sharers, staying)), staying)


def _read_sharer(estate: Estate, workload: ClusterWorkload, need: LoadNeed | str) -> Sharer | str:
    """Returns the sharer, or why the workload stays as it is."""
    pods = estate.pods_of(workload.name)
    obstacle = find_obstacle(workload, pods, estate, may_share=True)
    if obstacle or isinstance(need, str):
        return obstacle or str(need)
    now = len({pod.replica for pod in pods if pod.node})
    if not may_move(workload, now):
        return "its pods cannot move"
    if workload.pods_per_replica > 1 or max(pod.gpus for pod in pods) > 1:
        return "a replica has several GPUs"
    floors = [count for count, _ in budget_floors(workload, now)]
    least = max(1, workload.autoscaler.least if workload.autoscaler else 1, *floors)
    return Sharer(
        workload=workload.name,
        need=need,
        replicas=now,
        gpus_per_replica=float(sum(pod.gpus for pod in pods) / now),
        least=min(least, now),
        is_apart=any(rule.topology == HOST for rule in workload.spread),
    )


def _open(
    estate: Estate,
    kinds: Iterator[AlikeNodes],
    sharers: Mapping[WorkloadName, Sharer],
    staying: dict[WorkloadName, str],
) -> Iterator[OpenKind]:
    barred = {each.name: each.barred_nodes for each in estate.workloads}
    for kind in kinds:
        names = {node.name for node in kind.nodes}
        here = {pod.workload for pod in kind.pods} & sharers.keys()
        for name in sorted(here):
            if barred[name] & names:
                staying[name] = "it may not stand on all nodes of its kind"
                here.discard(name)
        yield open_kind(estate, kind, [sharers[name] for name in sorted(here)])


def open_kind(estate: Estate, kind: AlikeNodes, sharers: Sequence[Sharer]) -> OpenKind:
    """Returns the nodes with what pods leave that stay or wait; where these stand, the node stays."""
    first = estate.by_node[kind.nodes[0].name]
    nodes = _open_nodes(estate, kind, {sharer.workload for sharer in sharers})
    return OpenKind(first.product, first.memory_gib, tuple(nodes), tuple(sharers), kind)


def _open_nodes(estate: Estate, kind: AlikeNodes, sharers: set[WorkloadName]) -> Iterator[OpenNode]:
    gpus = {node.name: estate.by_node[node.name].gpus for node in kind.nodes}
    taken: Counter[str] = Counter()
    for pod in kind.pods:
        if pod.workload not in sharers:
            taken[pod.node] = min(gpus[pod.node], taken[pod.node] + _gpus_taken(pod))
    takers = [node.name for node in kind.nodes if node.takes_pods]
    held = {slots.resource: slots.gpus_per_slot for slots in estate.by_node[kind.nodes[0].name].offers}
    for pod in kind.waiting:
        if pod.workload not in sharers:
            size = max(1, ceil(sum(held.get(resource, 1) * count for resource, count in pod.slots.items())))
            fitting = [name for name in takers if gpus[name] - taken[name] >= size]
            if fitting:
                taken[max(fitting, key=lambda name: (taken[name], name))] += size
    for node in kind.nodes:
        free = gpus[node.name] - taken[node.name] if node.takes_pods else 0
        may_go = node.may_go and not taken[node.name]
        yield OpenNode(node.name, free, node.nano_per_hour if may_go else 0)


def _gpus_taken(pod: GpuPod) -> int:
    """Returns how many GPUs a pod that stays keeps from sharers; one that holds a part keeps a whole one."""
    return max(1, ceil(pod.gpus)) if pod.slots or pod.devices else 0
