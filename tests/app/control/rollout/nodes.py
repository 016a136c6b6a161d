"""Nodes that follow their assignments at their own pace without any guard, so that every fault is the rollout's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired
from app.control.rollout.changes import same_process
from app.control.rollout.rules import RolloutRules


@dataclass
class Copy:
    """One process."""

    instance: AssignedInstance
    stage: str = "starting"


@dataclass
class Node:
    """A node that takes its assignment, starts and stops copies, and reports, each now and then."""

    name: str
    wanted: NodeDesired = field(default_factory=NodeDesired)
    holds: int = 0  # generation
    copies: list[Copy] = field(default_factory=list)
    statuses: dict[str, InstanceStatus] = field(default_factory=dict)
    reported_generation: int = 0
    reported_at: float = 0.0
    late: frozenset[str] = frozenset()  # instances of which no further copy ever gets ready

    def take(self, wanted: NodeDesired, generation: int) -> None:
        self.wanted, self.holds = wanted, generation

    def act(self, random: Random) -> None:
        wanted = {instance.id: instance for instance in self.wanted.instances}
        to_host = {instance.id for instance in self.wanted.swapped}
        for copy in list(self.copies):
            shall = wanted.get(copy.instance.id)
            if copy.stage == "ready" and copy.instance.id in to_host:
                copy.stage = "swapping"
            elif copy.stage == "swapping":
                copy.stage = "swapped" if random.random() < 0.4 else "swapping"
            elif copy.stage == "swapped" and copy.instance.id in to_host:
                continue
            elif copy.stage == "swapped" and shall is not None and same_process(copy.instance, shall):
                copy.instance, copy.stage = shall, "ready"
            elif copy.stage in ("draining", "swapped"):
                if random.random() < 0.4:
                    self.copies.remove(copy)
            elif shall is None:
                copy.stage = "draining"
            elif same_process(copy.instance, shall):
                copy.instance = shall
                if copy.stage == "starting" and copy.instance.id not in self.late and random.random() < 0.4:
                    copy.stage = "ready"
            elif copy.instance.job or any(
                other.stage == "ready" and other.instance == shall for other in self.copies if other is not copy
            ):
                copy.stage = "draining"
        for id_, shall in wanted.items():
            mine = [copy for copy in self.copies if copy.instance.id == id_ and copy.stage != "draining"]
            if any(same_process(copy.instance, shall) for copy in mine) or (shall.job and self.has(id_)):
                continue
            if random.random() < 0.5:
                self.copies.append(Copy(shall))

    def has(self, id_: str) -> bool:
        return any(copy.instance.id == id_ for copy in self.copies)

    def report(self, at: float = 0.0) -> None:
        stages = ("draining", "swapped", "swapping", "starting", "ready")
        self.statuses, self.reported_generation, self.reported_at = {}, self.holds, at
        for copy in sorted(self.copies, key=lambda copy: stages.index(copy.stage)):
            mine = [other for other in self.copies if other.instance.id == copy.instance.id]
            is_rising = any(other.stage == "starting" for other in mine)
            self.statuses[copy.instance.id] = InstanceStatus(
                copy.stage, copy.stage == "ready" and not copy.instance.job, sm_percent=copy.instance.sm_percent,
                memory_gib=copy.instance.memory_gib, copies=len(mine),
                rising="starting" if is_rising else "",
            )  # fmt: skip


class Fleet:
    """Nodes that run their assignments, and the generations of these."""

    def __init__(self, assigned: Desired, random: Random) -> None:
        self.random = random
        self.at = 0.0  # seconds; 0: nodes do not say when they report
        self.assigned: dict[str, NodeDesired] = dict(assigned)
        self.assigned_generations = dict.fromkeys(assigned, 1)
        self.nodes = {name: Node(name) for name in assigned}
        for name, node in self.nodes.items():
            node.take(assigned[name], 1)
            node.copies = [Copy(instance, "ready") for instance in assigned[name].instances]
            node.copies += [Copy(instance, "swapped") for instance in assigned[name].swapped]
            node.report()

    def tell(self, changed: Desired, generation: int) -> None:
        self.assigned |= changed
        self.assigned_generations |= dict.fromkeys(changed, generation)

    def pass_time(self, frozen: Collection[str] = ()) -> None:
        for name, node in self.nodes.items():
            if name in frozen:
                continue
            if self.random.random() < 0.5:
                node.take(self.assigned[name], self.assigned_generations[name])
            node.act(self.random)
            if self.random.random() < 0.5:
                node.report(self.at)

    def observed(self) -> FleetStatus:
        return FleetStatus(
            {id_: status for node in self.nodes.values() for id_, status in node.statuses.items()},
            {name: node.reported_generation for name, node in self.nodes.items()},
            assigned_generations=dict(self.assigned_generations),
            reported_at={name: node.reported_at for name, node in self.nodes.items()} if self.at else {},
        )

    def carries(self, service: str) -> float:
        """By processes that serve."""
        best: dict[str, float] = {}
        for node in self.nodes.values():
            for copy in node.copies:
                if copy.stage == "ready" and f"shop/{copy.instance.service}" == service:
                    best[copy.instance.id] = max(best.get(copy.instance.id, 0.0), self._carried(copy.instance))
        return sum(best.values())

    def _carried(self, instance: AssignedInstance) -> float:
        """Returns the rate it carries: weights take effect when assigned, batches when the node has them."""
        shall = next(
            (shall for wanted in self.assigned.values() for shall in wanted.instances if shall.id == instance.id),
            instance,
        )
        is_same = same_process(instance, shall) and instance.batch == shall.batch
        return shall.rate_per_second if is_same else instance.rate_per_second

    def goes_on_carrying(self, service: str) -> float:
        """Returns the same for instances known to serve, without capacity that is assigned to end or shrink."""
        found = 0.0
        for name, wanted in self.assigned.items():
            for instance in wanted.instances:
                mine = [
                    copy.instance
                    for copy in self.nodes[name].copies
                    if copy.instance.id == instance.id and copy.stage == "ready"
                ]
                known = self.nodes[name].statuses.get(instance.id, InstanceStatus()).stage == "ready"
                if mine and known and f"shop/{instance.service}" == service:
                    found += min(instance.rate_per_second, *(copy.rate_per_second for copy in mine), 1e9)
        return found

    def overfull(self, rules: RolloutRules) -> list[str]:
        found = []
        for name, node in self.nodes.items():
            for gpu in {copy.instance.gpu for copy in node.copies}:
                there = [copy for copy in node.copies if copy.instance.gpu == gpu and copy.stage != "swapped"]
                here = [copy.instance for copy in there]
                memory = sum(instance.memory_gib for instance in here)
                once = {instance.id: instance.sm_percent for instance in here}
                twice = sum(instance.sm_percent for instance in here)
                if memory > rules.memory_gib[name] + 1e-6:
                    found.append(f"{name} holds {memory} GiB: {node.copies}")
                if (twice if node.wanted.handover == "strict" else sum(once.values())) > 100 + 1e-6:
                    found.append(f"{name} gives {twice} SM%")
                if len(here) - len(once) > 1:
                    found.append(f"{name} hands over several instances at once")
        return found
