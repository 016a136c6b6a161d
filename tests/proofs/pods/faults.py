"""Faults of a town whose copies are pods: what people, Kubernetes and accidents do to them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Refused
from tests.proofs.pods.agents import PodAgent, list_pids
from tests.proofs.town import Town, agent_words

COPIES, HOLDERS = "gpuwright.io/part=copy", "gpuwright.io/part=holder"
TAINTS = ("karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler")
AWAY_SECONDS = 0.2, 2.0


@dataclass
class PodFaults:
    """Strikes at random; what must be undone is undone by `mend`."""

    made: Town
    rng: random.Random
    struck: Counter[str] = field(default_factory=Counter)
    deaths: list[float] = field(default_factory=list)  # time.monotonic() of copies that ended without a warning
    _undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def agents(self) -> Sequence[PodAgent]:
        return [agent for agent in self.made.agents if isinstance(agent, PodAgent)]

    def strike(self) -> str:
        kind = self.rng.choice(sorted(KINDS))
        KINDS[kind](self)
        self.struck[kind] += 1
        return kind

    def mend(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _kubectl(self, *words: str) -> str:
        """Asks as its user does, who may name what is gone by now."""
        with suppress(Refused):
            return self.agents[0].cluster.kubectl("-n", self.agents[0].namespace, *words)
        return ""

    def _choose(self, kind: str, label: str) -> str:
        """Returns one of the namespace's objects; empty where there is none."""
        found = self._kubectl("get", kind, "-l", label, "-o", "name").split()
        return self.rng.choice(sorted(found)) if found else ""

    def kill_copy(self) -> None:
        agent = self.rng.choice(self.agents)
        containers = [container for container, copy in agent.read_copies().items() if copy]
        if containers:
            chosen = self.rng.choice(sorted(containers))
            self.deaths.append(time.monotonic())
            for pid in list_pids():
                with suppress(OSError):
                    if chosen in Path(f"/proc/{pid}/cgroup").read_text():
                        os.kill(pid, signal.SIGKILL)

    def delete_pod(self) -> None:
        if chosen := self._choose("pods", COPIES):
            self._kubectl("delete", chosen, "--wait=false")

    def delete_pod_at_once(self) -> None:
        if chosen := self._choose("pods", COPIES):
            self.deaths.append(time.monotonic())
            self._kubectl("delete", chosen, "--wait=false", "--grace-period=0", "--force")

    def delete_set(self) -> None:
        if chosen := self._choose("replicasets", COPIES):
            self._kubectl("delete", chosen, "--wait=false")

    def scale_set(self) -> None:
        if chosen := self._choose("replicasets", COPIES):
            self._kubectl("scale", chosen, f"--replicas={self.rng.choice([0, 2])}")

    def delete_holder(self) -> None:
        if chosen := self._choose("pods", HOLDERS):
            self._kubectl("delete", chosen, "--wait=false")

    def delete_holders_set(self) -> None:
        if chosen := self._choose("replicasets", HOLDERS):
            self._kubectl("delete", chosen, "--wait=false")

    def kill_agent(self) -> None:
        agent = self.rng.choice(self.agents)
        agent.end(signal.SIGKILL)
        time.sleep(self.rng.uniform(0, 1))
        agent.start(*agent_words(self.made.gateway))

    def stop_api_server(self) -> None:
        with self.agents[0].cluster.server.away():
            time.sleep(self.rng.uniform(*AWAY_SECONDS))

    def hang_api_server(self) -> None:
        with self.agents[0].cluster.server.hanging():
            time.sleep(self.rng.uniform(*AWAY_SECONDS))

    def restart_kubelet(self) -> None:
        agent = self.rng.choice(self.agents)
        agent.kubelet.stop()
        time.sleep(self.rng.uniform(*AWAY_SECONDS))
        agent.kubelet.start()

    def cordon(self) -> None:
        node = self.rng.choice(self.agents).node
        self._kubectl("cordon", node)
        self._undo.append(lambda: self._kubectl("uncordon", node))

    def taint(self) -> None:
        node, taint = self.rng.choice(self.agents).node, self.rng.choice(TAINTS)
        self._kubectl("taint", "nodes", node, f"{taint}=:NoSchedule", "--overwrite")
        self._undo.append(lambda: self._kubectl("taint", "nodes", node, f"{taint}-"))

    def kill_part(self) -> None:
        """Kills or pauses a planner, a server, an agent or the gateway's sidecar."""
        self.made.strike(self.rng)


KINDS: dict[str, Callable[[Any], None]] = {
    name: method
    for name, method in vars(PodFaults).items()
    if callable(method) and not name.startswith("_") and name not in ("strike", "mend")
}
