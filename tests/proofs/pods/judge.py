"""Judges a town whose copies are pods by the database, the API server, HAProxy and /proc; it asks no agent.

It shares no code with what it judges.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.proofs.ledger import Journals
from tests.proofs.pods.agents import PodAgent
from tests.proofs.town import Town
from tests.support.patience import patience

LOOK_SECONDS = 0.2
PLANNED = "SELECT node, instance FROM assigned WHERE withdrawn_at IS NULL ORDER BY 1, 2"
EVER_PLANNED = "SELECT DISTINCT node, instance FROM assigned"  # rows of what was withdrawn stay for weeks


@dataclass
class PodJudge:
    """Looks at every moment at what may never be, and at rest at what is left over or missing."""

    made: Town
    agents: Sequence[PodAgent]
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    _journals: Journals = field(init=False)
    _planned: set[tuple[str, str]] = field(default_factory=set)  # (node, instance), at any time
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._journals = Journals(self.made)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="judge", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(patience())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.looks += 1
            try:
                for agent in self.agents:
                    self.broken += self._find_overfull(agent)
                self.broken += self._find_unforeseen()
            except Exception as error:  # of the judge itself: it must not fall silent
                self.broken.append(f"the judge could not look: {error!r}")

    def _find_overfull(self, agent: PodAgent) -> list[str]:
        found = agent.read_shares()
        return [f"{agent.node}: {found}: {sum(found.values()):g} % of a GPU"] if sum(found.values()) > 100 else []

    def _find_unforeseen(self) -> list[str]:
        """Returns copies that run though no agent had written down that it would start them, or no plan had them."""
        running = [(agent.node, copy) for agent in self.agents for copy in agent.copies()]
        self._journals.read()  # after the look: whatever runs by then was written down before
        unwritten = [f"{node}: {copy} runs and is in no journal" for node, copy in running
                     if (node, copy) not in self._journals.copies]  # fmt: skip
        if not {(node, _instance_of(copy)) for node, copy in running} <= self._planned:
            self._planned |= {(row.node, row.instance) for row in self.made.rows(EVER_PLANNED)}
        unplanned = [f"{node}: {copy} runs and was never planned there" for node, copy in running
                     if (node, _instance_of(copy)) not in self._planned]  # fmt: skip
        return unwritten + unplanned

    def find_left_over(self) -> list[str]:
        """Returns what differs from one ready pod, one process and one route for each planned instance."""
        faults: list[str] = []
        planned = [(row.node, row.instance) for row in self.made.rows(PLANNED)]
        running = [(agent.node, _instance_of(copy)) for agent in self.agents for copy in agent.copies()]
        if sorted(running) != sorted(planned):
            return [f"planned {planned}, processes {running}"]  # to ask the API server costs more than all of this
        pods, sets = self._read("pods"), self._read("replicasets")
        ready = [(_node_of(pod), _instance_of(_copy_of(pod))) for pod in pods if _is_ready(pod)]
        if sorted(ready) != sorted(planned) or len(pods) != len(planned):
            there = [(_copy_of(pod), _is_ready(pod), pod["metadata"].get("deletionTimestamp")) for pod in pods]
            faults.append(f"planned {planned}, pods {there}")
        wanted = [(_node_of(each), _instance_of(_copy_of(each))) for each in sets if each["spec"]["replicas"]]
        if sorted(wanted) != sorted(planned):
            faults.append(f"planned {planned}, ReplicaSets {wanted}")
        addresses = {(pod["status"].get("podIP"), _copy_of(pod)) for pod in pods}
        routed = {(host, name.partition(":")[2]) for name, host in self._read_routes().items()}
        if routed != addresses:
            faults.append(f"routed {routed}, pods {addresses}")
        holders = Counter(_node_of(pod) for pod in self._read("pods", "holder") if pod["status"]["phase"] == "Running")
        if holders != {agent.node: agent.gpus for agent in self.agents}:
            faults.append(f"holders {holders}")
        return faults

    def find_orphans(self) -> list[str]:
        """Returns all that is there of copies, once none is planned."""
        there = [f"{kind} {_copy_of(each)}" for kind in ("pods", "replicasets") for each in self._read(kind)]
        # Where the device plugin gives GPUs out, as here, nothing has a claim.
        claims = self.agents[0].cluster.kubectl("get", "resourceclaims", "-A", "-o", "name").split()
        return [*there, *claims, *(copy for agent in self.agents for copy in agent.copies())]

    def _read(self, kind: str, part: str = "copy") -> list[dict[str, Any]]:
        cluster, namespace = self.agents[0].cluster, self.agents[0].namespace
        words = ("get", kind, "-l", f"gpuwright.io/part={part}")
        found: list[dict[str, Any]] = cluster.read("-n", namespace, *words)["items"]
        return found

    def _read_routes(self) -> dict[str, str]:
        """Returns the servers to which HAProxy sends requests, and their addresses."""
        lines = [line.split(" ") for line in self.made.gateway.ask("show servers state").splitlines()[2:] if line]
        return {words[3]: words[4] for words in lines if ":" in words[3] and words[5:7] == ["2", "0"]}


def _instance_of(copy: str) -> str:
    return copy.rsplit(".", 2)[0]


def _copy_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["annotations"]["gpuwright.io/copy"])


def _node_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["labels"]["gpuwright.io/node"])


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == conditions.get("gpuwright.io/limits-verified") == "True"
