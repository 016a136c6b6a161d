"""Kinds of nodes between which pods may move, built from the estate, its bill and what stood on nodes before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from clusters.bill import NodePrice
from clusters.estate import NOTHING, Estate, GpuNode, GpuPod, WorkloadName
from clusters.measured import MeasuredSeries
from clusters.savings.arrangement import AlikeNodes, PackedNode
from clusters.savings.floors import ReplicaRules, class_key, find_unread
from clusters.savings.needs import KNOWN_SHARE


def draw_kinds(
    estate: Estate,
    prices: Sequence[NodePrice],
    rules: Mapping[WorkloadName, ReplicaRules],
    passing_gpus: Mapping[str, MeasuredSeries],
) -> Iterator[AlikeNodes]:
    """Gives every kind of nodes. What is committed is paid anyway, so such a node never goes."""
    groups: dict[tuple[object, ...], list[tuple[GpuNode, NodePrice]]] = defaultdict(list)
    for node, price in zip(estate.nodes, prices, strict=True):
        groups[class_key(estate, node.name)].append((node, price))
    pods: dict[str, list[GpuPod]] = defaultdict(list)
    for pod in estate.pods:
        pods[pod.node].append(pod)
    places: dict[WorkloadName, set[str]] = defaultdict(set)
    for pod in estate.pods:
        places[pod.workload] |= {pod.node} - {""}
    coming = list(_coming(estate, rules))
    scaled = {each.name for each in estate.workloads if each.is_scalable}
    sizes = {each.name: each.slots_per_replica for each in estate.workloads}
    are_rules_read = not find_unread(estate)
    for members in groups.values():
        kept = _kept_for_passing([node for node, _ in members], pods, scaled, passing_gpus)
        here = {node.name for node, _ in members}
        offered = [{slots.resource: slots.slots for slots in node.offers} for node, _ in members]
        yield AlikeNodes(
            nodes=tuple(
                PackedNode(
                    name=node.name,
                    slots=slots,
                    nano_per_hour=price.nano_per_hour or 0,
                    may_go=(
                        are_rules_read
                        and bool(price.nano_per_hour)
                        and not price.is_committed
                        and node.name not in kept
                    ),
                    takes_pods=node.is_ready and not node.is_cordoned and node.name not in kept,
                )
                for (node, price), slots in zip(members, offered, strict=True)
            ),
            pods=tuple(pod for node, _ in members for pod in pods[node.name]),
            waiting=tuple(
                pod
                for pod in (*pods[""], *coming)
                if _may_come(here - rules[pod.workload].barred_nodes, pod, places[pod.workload], offered)
            ),
            rules={name: _rules_here(rule, here, places[name], pods) for name, rule in rules.items()},
            sizes=sizes,
        )


def _may_come(here: set[str], pod: GpuPod, places: set[str], offered: Sequence[Mapping[str, int]]) -> bool:
    """Returns whether a pod that waits would take a place here: beside its like, or anywhere if it has none."""
    fits = any(all(slots.get(resource, 0) >= count for resource, count in pod.slots.items()) for slots in offered)
    return bool(pod.slots and here) and fits and (not places or bool(places & here))


def _rules_here(
    rule: ReplicaRules,
    here: set[str],
    places: set[str],
    pods: Mapping[str, Sequence[GpuPod]],
) -> ReplicaRules:
    """Returns a workload's rules among these nodes; of one that stands on others as well, all replicas stay here."""
    if places <= here:
        return rule
    count = len({pod.replica for node in places & here for pod in pods[node] if pod.workload == rule.name})
    return ReplicaRules(
        rule.name, count, count, 0, rule.reasons, most_per_node=rule.most_per_node, serving=count,
        barred_nodes=rule.barred_nodes,
    )  # fmt: skip


def _coming(estate: Estate, rules: Mapping[WorkloadName, ReplicaRules]) -> Iterator[GpuPod]:
    """Gives pods that autoscalers bring back at other times, where they cannot be packed with their like.

    One more than the estate has room for stands for all: maxReplicas may be any number.
    """
    room = Counter[str]()
    for node in estate.nodes:
        room.update({slots.resource: slots.slots for slots in node.offers})
    for workload in estate.workloads:
        rule = rules[workload.name]
        pods = [pod for pod in estate.pods_of(workload.name) if pod.node]
        slots = max((pod.slots for pod in pods), key=lambda slots: sum(slots.values()), default=None)
        slots = workload.slots_per_replica if slots is None else slots
        count = len(pods) // rule.now if rule.now else 1
        most = 1 + min((room[resource] // each for resource, each in slots.items()), default=0)
        for at in range(min(most, rule.extra_room * max(1, count))):
            yield GpuPod(
                workload.name.namespace, f"{workload.name.name} at its peak, {at}", workload.name, "",
                slots, (), NOTHING, f"peak-{at}", False,
            )  # fmt: skip


def is_mostly_known(series: MeasuredSeries) -> bool:
    """Returns whether a series has so few gaps that what it has stands for all of its time."""
    return bool(series) and sum(value is not None for value in series) >= KNOWN_SHARE * len(series)


def _kept_for_passing(
    nodes: Sequence[GpuNode],
    pods: Mapping[str, Sequence[GpuPod]],
    scaled: set[WorkloadName],
    passing_gpus: Mapping[str, MeasuredSeries],
) -> set[str]:
    """Returns the nodes that jobs and people need at other times: the emptiest, as many as they stood on at once.

    Where that was not measured, or not for most of the time, every node that is empty now may be theirs.
    """
    by_load = sorted((sum(pod.gpus for pod in pods[node.name]), node.name) for node in nodes)
    now = {node.name for node in nodes if any(pod.workload not in scaled for pod in pods[node.name])}
    if not all(is_mostly_known(passing_gpus.get(node.name, ())) for node in nodes):
        return now | {name for load, name in by_load if not load}
    columns = zip(*(passing_gpus[node.name] for node in nodes), strict=True)
    most = max((sum(bool(value) for value in column) for column in columns), default=0)
    more = max(0, most - len(now))
    return now | set([name for _, name in by_load if name not in now][:more])
