"""What keeps replicas where and as many as they are: bounds, budgets, spread, and kinds that cannot be moved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from clusters.estate import MOST_REPLICAS, ClusterWorkload, DisruptionBudget, Estate, GpuPod, WorkloadName
from clusters.savings.needs import LoadNeed

MOVABLE = ("Deployment", "ReplicaSet", "Rollout")
IN_ORDER = ("StatefulSet", "LeaderWorkerSet")  # the last replica goes first
# What must be read before a replica may go or move.
NEEDED_KINDS = (
    "Pod", "Deployment", "StatefulSet", "LeaderWorkerSet", "HorizontalPodAutoscaler", "ScaledObject",
    "PodDisruptionBudget",
)  # fmt: skip
HOST = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class ReplicaRules:
    """How few replicas of a workload may stay, and how they may stand."""

    name: WorkloadName
    now: int  # that hold GPUs of a node
    least: int  # that must stay; more than now if its autoscaler had more at its peak
    survivors: int  # that must stay when any one node is lost
    reasons: tuple[str, ...]  # why not fewer than `least`
    is_movable: bool = False
    is_in_order: bool = False  # the last replica goes first
    most: int = 0  # that may stand at once
    most_per_node: int | None = None
    serving: int = 0  # that serve its peak, or all where that is unknown; 0: nothing restarts them
    barred_nodes: frozenset[str] = frozenset()
    surge_below: int = 0  # with fewer replicas a rollout needs room for one more
    extra_room: int = 0  # replicas beyond those of now that cannot be packed freely and may come back


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """Between which numbers a workload may be scaled while it runs, and what the loss of a node takes of it."""

    least: int
    least_reason: str
    most: int | None = None  # None: nobody says
    most_reason: str = ""
    survivors: int = 0  # that would stay today when any one node is lost
    together: int = 1  # on the node that has most of them today

    def apply(self, needed: int, must_survive: int) -> tuple[int, int, list[str]]:
        """Returns how many there must be for so many to serve, how many of them on one node at most, and why.

        Whichever node is lost, as many stay as must survive, or as many as would stay today. They stand on as few
        nodes as that takes, at most as many together as today.
        """
        must, reasons = min(must_survive, self.survivors), list[str]()
        lost = ceil(must / ceil(must / self.together)) if must else 0
        count = max(needed, must + lost)
        if count > needed:
            reasons.append(f"{'one' if count == needed + 1 else count - needed} more for a lost node")
        if count < self.least:
            count = self.least
            reasons.append(f"{count} by {self.least_reason}")
        if self.most is not None and count > self.most:
            count = self.most
            reasons.append(f"{count} by {self.most_reason}")
        return count, count - must if count > must else self.together, reasons


def draw_bounds(workload: ClusterWorkload, pods: Sequence[GpuPod], estate: Estate) -> ReplicaBounds | str:
    """Returns the bounds of a workload, or why its number stays as it is."""
    if obstacle := _find_lasting_obstacle(workload, pods, estate):
        return obstacle
    now, autoscaler = len({pod.replica for pod in pods if pod.node}), workload.autoscaler
    floors = [(1, "the rule that one stays"), *budget_floors(workload, now)]
    if autoscaler and autoscaler.least > MOST_REPLICAS:
        return f"minReplicas of {autoscaler.kind} {autoscaler.name} is above {MOST_REPLICAS:,}"
    if autoscaler:
        floors.append((autoscaler.least, f"minReplicas of {autoscaler.kind} {autoscaler.name}"))
    least, reason = max(floors, key=lambda floor: floor[0])
    together = max(_count_per_node(pods).values(), default=0)
    return ReplicaBounds(
        least=least,
        least_reason=reason,
        most=min(max(autoscaler.most, least), MOST_REPLICAS) if autoscaler else None,
        most_reason=f"maxReplicas of {autoscaler.kind} {autoscaler.name}" if autoscaler else "",
        survivors=now - together,
        together=max(1, together),
    )


def find_unread(estate: Estate) -> str:
    """Returns which lists are missing that may keep any replica or node; empty: none."""
    return ", ".join(kind for kind in NEEDED_KINDS if kind in estate.unread_kinds)


def draw_rules(workload: ClusterWorkload, pods: Sequence[GpuPod], estate: Estate, need: LoadNeed | str) -> ReplicaRules:
    """Returns the rules of a workload; where anything is unclear, it stays as it is."""
    now, obstacle = len({pod.replica for pod in pods if pod.node}), find_obstacle(workload, pods, estate)
    is_movable = not obstacle and may_move(workload, now)
    together = max(_count_per_node(pods).values(), default=0)
    autoscaler = workload.autoscaler
    if obstacle or isinstance(need, str):
        reason = obstacle or f"{need}"
        most = autoscaler.most if autoscaler else now
        if autoscaler and not isinstance(need, str):
            most = min(most, need.most_ready)
        if not workload.waiting_pods:  # what is declared and missing may come
            most = max(most, workload.replicas or 0)
        return ReplicaRules(
            workload.name, now, now, now - together, (reason,), is_movable, most=now,
            most_per_node=_most_per_node(workload), serving=now if workload.is_scalable else 0,
            barred_nodes=workload.barred_nodes, surge_below=workload.surge_below, extra_room=max(0, most - now),
        )  # fmt: skip
    most = max(now, min(need.most_ready, autoscaler.most)) if autoscaler else now
    floors = [(need.peak_replicas, _peak_reason(need, now)), (1, "one stays")]
    if autoscaler:
        floors.append((autoscaler.least, f"minReplicas of {autoscaler.kind} {autoscaler.name}"))
    floors += list(budget_floors(workload, now))
    wanted = max(count for count, _ in floors)
    least = min(wanted, most if is_movable else now)
    survivors_today = most - ceil(most * Fraction(together, now)) if now else 0
    return ReplicaRules(
        name=workload.name,
        now=now,
        least=least if now else 0,
        survivors=min(max(need.peak_replicas, 1), survivors_today),
        reasons=tuple(dict.fromkeys(reason for count, reason in floors if count >= least)),
        is_movable=is_movable,
        is_in_order=workload.name.kind in IN_ORDER,
        most=most,
        most_per_node=_most_per_node(workload),
        serving=max(need.peak_replicas, 1),
        barred_nodes=workload.barred_nodes,
        surge_below=workload.surge_below,
        extra_room=min(wanted, most) - (least if now else 0),
    )


def _peak_reason(need: LoadNeed, now: int) -> str:
    if need.peak_replicas > max(now, need.most_ready):
        replicas = "replica" if need.most_ready == 1 else "replicas"
        return f"its SLO was missed at its peak, with at most {need.most_ready} {replicas}"
    if need.peak_replicas > now:
        return f"by what is shown its peak would need {need.peak_replicas}"
    if need.peak_rate_per_second and (need.shown is None or need.shown.replicas >= need.peak_replicas):
        return "no 15 minutes show that fewer serve its peak"
    return "its peak needs them"


def may_move(workload: ClusterWorkload, now: int) -> bool:
    """Returns whether pods of a workload may end here and start elsewhere, if nothing else speaks against it."""
    may_be_evicted = all(_count_allowed(budget, now * workload.pods_per_replica) for budget in workload.budgets)
    return workload.name.kind in MOVABLE and not workload.is_tied and may_be_evicted


def find_obstacle(workload: ClusterWorkload, pods: Sequence[GpuPod], estate: Estate, *, may_share: bool = False) -> str:
    """Returns why no replica of a workload may go or move; empty: nothing speaks against it.

    `may_share`: one that shares GPUs may.
    """
    if obstacle := _find_lasting_obstacle(workload, pods, estate, may_share=may_share):
        return obstacle
    declared, waiting = workload.replicas or 0, workload.waiting_pods
    if workload.ready < declared:
        return f"{workload.ready} of {declared} replicas are ready"
    if waiting:
        return f"{waiting} {'pod waits' if waiting == 1 else 'pods wait'} for a node"
    return "" if workload.running == declared else f"{workload.running} replicas run, and {declared} are declared"


def _find_lasting_obstacle(
    workload: ClusterWorkload, pods: Sequence[GpuPod], estate: Estate, *, may_share: bool = False
) -> str:
    """Returns why a workload stays as it is, also once all its replicas are ready; empty: nothing says so."""
    if not workload.is_scalable or workload.name.kind not in MOVABLE + IN_ORDER:
        return f"a {workload.name.kind} is not scaled by replicas"
    if workload.replicas is None:
        return "its object could not be read"
    if unread := find_unread(estate):
        return f"not read: {unread}"
    pods = [pod for pod in pods if pod.node]
    if any(pod.devices for pod in pods):
        return "it holds GPUs by claims"
    if any(pod.uses_part for pod in pods):
        return "KAI's scheduler gives it equal parts of GPUs, which nothing enforces"
    if any(rule.topology != HOST for rule in workload.spread):
        return "it is spread over more than nodes"
    if any(pod.node not in estate.by_node for pod in pods):
        return "it stands on nodes that were not read"
    if len({class_key(estate, pod.node) for pod in pods}) > 1:
        return "it stands on several kinds of nodes"
    if not may_share and any(
        slots.sharing in ("timeSlicing", "mps") and slots.resource in pod.slots
        for pod in pods
        for slots in estate.by_node[pod.node].offers
    ):
        return "it shares GPUs, and how it does beside others is not shown"
    if workload.autoscaler and workload.autoscaler.is_paused:
        return f"{workload.autoscaler.kind} {workload.autoscaler.name} is paused"
    return ""


def class_key(estate: Estate, node: str) -> tuple[object, ...]:
    """Returns what two nodes have in common if a pod of one may stand on the other; unknown nodes are like no other."""
    found = estate.by_node.get(node)
    if found is None:
        return (node,)
    return (
        found.pool, found.instance_type, found.product, found.memory_gib, found.region, found.purchase == "spot",
        found.gpus, found.offers,
    )  # fmt: skip


def _most_per_node(workload: ClusterWorkload) -> int | None:
    """Returns how many replicas may share a node; the emptiest node is taken to have none of them."""
    caps = [rule.max_skew or 1 for rule in workload.spread if rule.topology == HOST]
    return min(caps, default=None)


def _count_per_node(pods: Sequence[GpuPod]) -> dict[str, int]:
    touched: dict[str, set[str]] = {}
    for pod in pods:
        if pod.node:
            touched.setdefault(pod.node, set()).add(pod.replica)
    return {node: len(replicas) for node, replicas in touched.items()}


def budget_floors(workload: ClusterWorkload, now: int) -> Iterator[tuple[int, str]]:
    """Gives the fewest replicas with which each budget lets a pod go, if it lets one go today."""
    size = workload.pods_per_replica
    for budget in workload.budgets:
        if not _count_allowed(budget, now * size):
            yield now, f"PodDisruptionBudget {budget.name} lets none go"
            continue
        least = next(count for count in range(1, now + 1) if _count_allowed(budget, count * size))
        if least > 1:
            yield least, f"PodDisruptionBudget {budget.name}"


def _count_allowed(budget: DisruptionBudget, pods: int) -> int:
    """Returns how many of so many pods may go at once; what cannot be read allows none."""
    if budget.max_unavailable:
        return min(pods, _pods_of(budget.max_unavailable, pods, otherwise=0))
    return max(0, pods - _pods_of(budget.min_available, pods, otherwise=pods))


def _pods_of(text: str, pods: int, *, otherwise: int) -> int:
    """Returns a number of pods; a percent of them is rounded up, as Kubernetes does."""
    match = re.fullmatch(r"(\d{1,9})(%?)", text)
    if match is None:
        return otherwise
    return ceil(Fraction(int(match[1]) * pods, 100)) if match[2] else int(match[1])
