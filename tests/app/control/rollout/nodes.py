"""Nodes that do exactly what they are told, at their own pace, and have no guard: what goes wrong is the rollout's."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired
from app.control.rollout.changes import same_process
from app.control.rollout.rules import RolloutRules


@dataclass
class Copy:
    """One process."""

    one: AssignedInstance
    stage: str = "starting"


@dataclass
class Node:
    """Takes its assignment, brings copies up and takes them down, and reports: each now and then."""

    name: str
    wanted: NodeDesired = field(default_factory=NodeDesired)
    holds: int = 0  # generation
    copies: list[Copy] = field(default_factory=list)
    said: dict[str, InstanceStatus] = field(default_factory=dict)
    said_generation: int = 0

    def take(self, wanted: NodeDesired, generation: int) -> None:
        self.wanted, self.holds = wanted, generation

    def act(self, random: Random) -> None:
        wanted = {one.id: one for one in self.wanted.instances}
        for copy in list(self.copies):
            shall = wanted.get(copy.one.id)
            if copy.stage == "draining":
                if random.random() < 0.4:
                    self.copies.remove(copy)
            elif shall is None:
                copy.stage = "draining"
            elif same_process(copy.one, shall):
                copy.one = shall
                if copy.stage == "starting" and random.random() < 0.4:
                    copy.stage = "ready"
            elif copy.one.job or any(
                other.stage == "ready" and other.one == shall for other in self.copies if other is not copy
            ):
                copy.stage = "draining"
        for id_, shall in wanted.items():
            mine = [copy for copy in self.copies if copy.one.id == id_ and copy.stage != "draining"]
            if any(same_process(copy.one, shall) for copy in mine) or (shall.job and self.has(id_)):
                continue
            if random.random() < 0.5:
                self.copies.append(Copy(shall))

    def has(self, id_: str) -> bool:
        return any(copy.one.id == id_ for copy in self.copies)

    def report(self) -> None:
        stages = ("draining", "starting", "ready")
        self.said, self.said_generation = {}, self.holds
        for copy in sorted(self.copies, key=lambda copy: stages.index(copy.stage)):
            count = sum(other.one.id == copy.one.id for other in self.copies)
            self.said[copy.one.id] = InstanceStatus(
                copy.stage, copy.stage == "ready", sm_percent=copy.one.sm_percent, memory_gib=copy.one.memory_gib,
                copies=count,
            )  # fmt: skip


class Fleet:
    """Nodes that run what they were told, and the generations that tell them more."""

    def __init__(self, told: Desired, random: Random) -> None:
        self.random = random
        self.told: dict[str, NodeDesired] = dict(told)
        self.asked = dict.fromkeys(told, 1)
        self.nodes = {name: Node(name) for name in told}
        for name, node in self.nodes.items():
            node.take(told[name], 1)
            node.copies = [Copy(one, "ready") for one in told[name].instances]
            node.report()

    def tell(self, changed: Desired, generation: int) -> None:
        self.told |= changed
        self.asked |= dict.fromkeys(changed, generation)

    def pass_time(self) -> None:
        for name, node in self.nodes.items():
            if self.random.random() < 0.5:
                node.take(self.told[name], self.asked[name])
            node.act(self.random)
            if self.random.random() < 0.5:
                node.report()

    def observed(self) -> FleetStatus:
        return FleetStatus(
            {id_: seen for node in self.nodes.values() for id_, seen in node.said.items()},
            {name: node.said_generation for name, node in self.nodes.items()},
            assigned_generations=dict(self.asked),
        )

    def carries(self, service: str) -> float:
        """By processes that serve."""
        best: dict[str, float] = {}
        for node in self.nodes.values():
            for copy in node.copies:
                if copy.stage == "ready" and f"shop/{copy.one.service}" == service:
                    best[copy.one.id] = max(best.get(copy.one.id, 0.0), self._carried(copy.one))
        return sum(best.values())

    def _carried(self, one: AssignedInstance) -> float:
        """Weights are the gateway's, and in force as soon as they are told; batches when the node has them."""
        told = next((told for wanted in self.told.values() for told in wanted.instances if told.id == one.id), one)
        is_same = same_process(one, told) and one.batch == told.batch
        return told.rate_per_second if is_same else one.rate_per_second

    def goes_on_carrying(self, service: str) -> float:
        """The same, of what is known to serve, and without what has been told to end, or to be less."""
        found = 0.0
        for name, wanted in self.told.items():
            for one in wanted.instances:
                mine = [copy.one for copy in self.nodes[name].copies if copy.one.id == one.id and copy.stage == "ready"]
                known = self.nodes[name].said.get(one.id, InstanceStatus()).stage == "ready"
                if mine and known and f"shop/{one.service}" == service:
                    found += min(one.rate_per_second, *(copy.rate_per_second for copy in mine), 1e9)
        return found

    def overfull(self, rules: RolloutRules) -> list[str]:
        found = []
        for name, node in self.nodes.items():
            for gpu in {copy.one.gpu for copy in node.copies}:
                here = [copy.one for copy in node.copies if copy.one.gpu == gpu]
                memory = sum(one.memory_gib for one in here)
                once = {one.id: one.sm_percent for one in here}
                twice = sum(one.sm_percent for one in here)
                if memory > rules.memory_gib[name] + 1e-6:
                    found.append(f"{name} holds {memory} GiB: {node.copies}")
                if (twice if node.wanted.handover == "strict" else sum(once.values())) > 100 + 1e-6:
                    found.append(f"{name} gives {twice} SM%")
                if len(here) - len(once) > 1:
                    found.append(f"{name} hands over more than one at once")
        return found
