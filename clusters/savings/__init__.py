"""What can be saved at level L0: what the cluster's own data shows, and what no plan can save.

Pure: from an estate, its bill and what was measured, the same savings. Nothing is taken for granted that was not seen:
where the data is silent, everything stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest

from clusters.bill import Bill
from clusters.estate import NOTHING, Estate, UnknownFigure, WorkloadName
from clusters.measured import LatencyPromise, MeasuredLoads
from clusters.savings.arrangement import AlikeNodes, Arrangement, find_rollable, stand_today
from clusters.savings.floors import ReplicaRules, draw_rules, find_unread
from clusters.savings.kinds import draw_kinds, is_mostly_known
from clusters.savings.limit import bound_nano_per_hour
from clusters.savings.needs import LoadNeed, find_need
from clusters.savings.packing import bound_freed_nodes, free_nodes

MEASURE = (
    "give --prometheus that has its requests, latency and ready replicas for a day or more, and a --from of no longer"
    " than it has them"
)


@dataclass(frozen=True, slots=True)
class ReplicaSaving:
    """The replicas of one workload: how many hold GPUs now, how many its data shows to be enough, and why not fewer."""

    workload: WorkloadName
    now: int
    needed: int
    survivors: int | None  # of them, when the node that matters most is lost; None: it was not arranged
    gpus_freed: Fraction
    reasons: tuple[str, ...]
    need: LoadNeed | str  # or why the data does not show it


@dataclass(frozen=True, slots=True)
class FreedNode:
    """A node that can go, and what is paid for it."""

    node: str
    nano_per_hour: int


@dataclass(frozen=True, slots=True)
class Savings:
    """What level L0 saves: nodes, in money, and GPUs of replicas that go; beside that what no plan can exceed."""

    hours: float  # in which a load, or what jobs and people held, was measured
    nodes: tuple[FreedNode, ...]
    more_nodes: int  # that another packing might free, at most
    workloads: tuple[ReplicaSaving, ...]  # those that are scaled
    idle_gpus: Fraction  # that would be idle inside the nodes that stay
    moves: int  # pods that must move to free the nodes
    # The most that any plan saves an hour: with each replica on its GPU type, and on the cheapest one of the estate.
    limit_nano_per_hour: int
    wide_limit_nano_per_hour: int
    stuck_rollouts: tuple[WorkloadName, ...]  # which find room for the pod that they start first today, and then none
    unknown: tuple[UnknownFigure, ...]

    @property
    def nano_per_hour(self) -> int:
        return sum(node.nano_per_hour for node in self.nodes)

    @property
    def needs(self) -> dict[WorkloadName, LoadNeed | str]:
        """Returns what the load of each workload that is scaled needs, or why the data does not show it."""
        return {each.workload: each.need for each in self.workloads}

    @property
    def gpus_freed(self) -> Fraction:
        return sum((each.gpus_freed for each in self.workloads), NOTHING)


@dataclass(slots=True)
class PackedEstate:
    """What packing frees, one kind of nodes after the other."""

    counts: dict[WorkloadName, int]  # of replicas that stay
    survivors: dict[WorkloadName, int] = field(default_factory=dict)
    blocked: set[WorkloadName] = field(default_factory=set)  # workloads for which no way was found
    nodes: list[FreedNode] = field(default_factory=list)
    more_nodes: int = 0
    moves: int = 0
    idle_gpus: Fraction = NOTHING
    stuck_rollouts: set[WorkloadName] = field(default_factory=set)

    def add(self, estate: Estate, kind: AlikeNodes) -> None:
        gone, arrangement = free_nodes(kind)
        self.nodes += [FreedNode(node.name, node.nano_per_hour) for node in kind.nodes if node.name in gone]
        self.more_nodes += bound_freed_nodes(kind) - len(gone)
        if arrangement is None:
            self.blocked |= {pod.workload for pod in kind.pods}
            self.idle_gpus += _idle_gpus(estate, stand_today(kind))
            return
        self.stuck_rollouts |= find_rollable(kind, stand_today(kind)) - find_rollable(kind, arrangement)
        for name in arrangement.replicas:
            before, after = _count_by_node(kind, name), arrangement.on_node(name)
            standing = len({pod.replica for pod in kind.pods if pod.workload == name})
            self.survivors[name] = arrangement.survivors(name)
            self.counts[name] += arrangement.count(name) - standing
            self.moves += min(sum((after - before).values()), sum(before.values()))
        self.idle_gpus += _idle_gpus(estate, arrangement)


def find_savings(
    estate: Estate, bill: Bill, measured: MeasuredLoads, promises: Mapping[WorkloadName, LatencyPromise]
) -> Savings:
    """Returns what the data shows can be saved; `promises` are those that people gave."""
    needs = find_needs(estate, measured, promises)
    rules = {
        each.name: draw_rules(each, estate.pods_of(each.name), estate, needs[each.name]) for each in estate.workloads
    }
    packed = PackedEstate({name: rule.now for name, rule in rules.items()})
    for kind in draw_kinds(estate, bill.nodes, rules, measured.passing_gpus):
        packed.add(estate, kind)
    workloads = tuple(
        _saving(
            estate,
            rules[each.name],
            needs[each.name],
            packed.counts[each.name],
            packed.survivors.get(each.name),
            each.name in packed.blocked,
        )
        for each in estate.workloads
        if each.is_scalable
    )
    limits = [
        max(0, bill.nano_per_hour - bound_nano_per_hour(
            estate, bill, rules, needs, measured.steps, is_type_kept=is_type_kept
        ))
        for is_type_kept in (True, False)
    ]  # fmt: skip
    return Savings(
        hours=_count_known(measured) * measured.step_seconds / 3600,
        nodes=tuple(packed.nodes),
        more_nodes=packed.more_nodes,
        workloads=workloads,
        idle_gpus=packed.idle_gpus,
        moves=packed.moves,
        limit_nano_per_hour=limits[0],
        wide_limit_nano_per_hour=max(limits),
        stuck_rollouts=tuple(sorted(packed.stuck_rollouts)),
        unknown=(*_unknown_rules(estate), *_unknown(workloads), *_unknown_nodes(estate, measured)),
    )


def find_needs(
    estate: Estate, measured: MeasuredLoads, promises: Mapping[WorkloadName, LatencyPromise]
) -> dict[WorkloadName, LoadNeed | str]:
    """Returns what the load of each workload needs, or why the data does not show it."""
    needs: dict[WorkloadName, LoadNeed | str] = {}
    for each in estate.workloads:
        series = measured.workloads.get(each.name)
        needs[each.name] = (
            find_need(series, promises.get(each.name), measured.step_seconds) if series else "no load was measured"
        )
    return needs


def _count_by_node(kind: AlikeNodes, name: WorkloadName) -> Counter[str]:
    return Counter(node for node, _ in {(pod.node, pod.replica) for pod in kind.pods if pod.workload == name})


def _idle_gpus(estate: Estate, arrangement: Arrangement) -> Fraction:
    idle = NOTHING
    for node, free in arrangement.free.items():
        idle += sum(
            (max(0, free[offer.resource]) * offer.gpus_per_slot for offer in estate.by_node[node].offers), NOTHING
        )
    return idle


def _saving(
    estate: Estate,
    rules: ReplicaRules,
    need: LoadNeed | str,
    needed: int,
    survivors: int | None,
    is_blocked: bool,
) -> ReplicaSaving:
    reasons = rules.reasons
    if is_blocked:
        reasons = ("no room was found for its peak and all that waits",)
    elif needed > rules.least:
        reasons = (f"{rules.survivors} must stay when a node is lost",)
    held = sum((pod.gpus for pod in estate.pods_of(rules.name)), NOTHING)
    size = held / rules.now if rules.now else NOTHING
    return ReplicaSaving(rules.name, rules.now, needed, survivors, size * max(0, rules.now - needed), reasons, need)


def _count_known(measured: MeasuredLoads) -> int:
    """Returns the steps of which anything is known: a source may be younger than the time that it was asked for."""
    series = [*(each.rates_per_second for each in measured.workloads.values()), *measured.passing_gpus.values()]
    return sum(any(value is not None for value in step) for step in zip_longest(*series))


def _unknown(workloads: tuple[ReplicaSaving, ...]) -> list[UnknownFigure]:
    return [
        UnknownFigure(f"workload {each.workload}", f"{each.need}, so all its replicas stay", MEASURE)
        for each in workloads
        if isinstance(each.need, str) and each.now
    ]


def _unknown_rules(estate: Estate) -> list[UnknownFigure]:
    unread = find_unread(estate)
    reason = f"not read, and they may keep replicas: {unread}; so all replicas and nodes stay"
    return [UnknownFigure("what can be saved", reason, "allow `get` and `list` of them")] if unread else []


def _unknown_nodes(estate: Estate, measured: MeasuredLoads) -> list[UnknownFigure]:
    reason = "whether jobs or people use it at other times was not measured, so it stays where it is empty"
    remedy = "give --prometheus that has what pods asked for, from kube-state-metrics, all the time of --from"
    figures = [
        UnknownFigure(f"node {node.name}", reason, remedy)
        for node in estate.nodes
        if not is_mostly_known(measured.passing_gpus.get(node.name, ()))
    ]
    gaps = max((series.count(None) for series in measured.passing_gpus.values()), default=0)
    if gaps and len(figures) < len(estate.nodes):
        hours = gaps * measured.step_seconds / 3600
        reason = f"what jobs and people held is not known for {hours:g} hours, which are taken to be as the others"
        figures.append(UnknownFigure("GPUs of jobs and people", reason, "keep kube-state-metrics running"))
    return figures
