"""Keeps what instances share beyond their GPUs: cores and host memory of nodes, limits of tenants, and watts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import inf

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Limit, Node, Policy, Service


@dataclass
class Commons:
    """What is free of each node, and what tenants and the whole fleet take."""

    nodes: Mapping[str, int]  # their numbers
    cpu_cores: Floats  # free, by the number of the node
    host_memory_gib: Floats
    gpus_taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by tenant
    price_taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    drawn_w: float = 0.0  # on average, by the whole fleet; counted only under a power budget

    @classmethod
    def of(cls, nodes: Mapping[str, Node]) -> Commons:
        """Returns what is free of these nodes while nothing runs."""
        free = np.array([(node.cpu_cores, node.host_memory_gib) for node in nodes.values()], dtype=np.float64)
        cores, host_gib = free.reshape(-1, 2).T.copy()
        return cls({name: number for number, name in enumerate(nodes)}, cores, host_gib)

    def copy(self) -> Commons:
        """Returns the same, to place instances for trial."""
        return Commons(
            self.nodes, self.cpu_cores.copy(), self.host_memory_gib.copy(), copy(self.gpus_taken),
            copy(self.price_taken), self.drawn_w,
        )  # fmt: skip

    def grow(self, nodes: Sequence[Node], idle_w: float) -> Commons:
        """Returns the same with more nodes, whose GPUs draw so many watts idle."""
        more = self.copy()
        more.nodes = {**self.nodes, **{node.name: len(self.nodes) + at for at, node in enumerate(nodes)}}
        more.cpu_cores = np.append(self.cpu_cores, [node.cpu_cores for node in nodes])
        more.host_memory_gib = np.append(self.host_memory_gib, [node.host_memory_gib for node in nodes])
        more.drawn_w += idle_w
        return more

    def has_room(self, node: int, cpu_cores: float, host_memory_gib: float) -> bool:
        """Returns whether a node has so many cores and so much host memory free."""
        return is_at_most(cpu_cores, self.cpu_cores[node]) and is_at_most(host_memory_gib, self.host_memory_gib[node])

    def use_node(self, node: int, cpu_cores: float, host_memory_gib: float) -> None:
        self.cpu_cores[node] -= cpu_cores
        self.host_memory_gib[node] -= host_memory_gib

    def charge(self, tenant: str, share: float, price_per_hour: float) -> None:
        """Counts a share of a GPU of this price as taken by a tenant."""
        self.gpus_taken[tenant] += share
        self.price_taken[tenant] += share * price_per_hour

    def left_of(self, tenant: str, limit: Limit | None, part: float = 1.0) -> tuple[float, float]:
        """Returns the GPUs and the price an hour that a limit, or a part of it, leaves; infinite where it sets none."""
        gpus = price = inf
        if limit and limit.gpus is not None:
            gpus = limit.gpus * part - self.gpus_taken.get(tenant, 0.0)
        if limit and limit.price_per_hour is not None:
            price = limit.price_per_hour * part - self.price_taken.get(tenant, 0.0)
        return gpus, price

    def left_w(self, policy: Policy) -> float:
        """Returns the watts that the power budget leaves; infinite without one."""
        return inf if policy.power_budget_w is None else policy.power_budget_w - self.drawn_w


def share_of(service: Service, sm_percent: float) -> float:
    """Returns the share of a GPU that an instance takes of its tenant's limit."""
    return 1.0 if service.is_dedicated else sm_percent / 100


class CountsByGpu(dict[str, Ints]):
    """How many instances of each model or service run on each GPU."""

    def __init__(self, gpus: int, before: CountsByGpu | None = None) -> None:
        super().__init__()
        self._gpus, self._before = gpus, before  # what is counted before a change is copied once it is needed

    def __missing__(self, name: str) -> Ints:
        before = self._before
        counts = self[name] = np.zeros(self._gpus, np.int64) if before is None else before[name].copy()
        return counts

    def copy(self) -> CountsByGpu:
        return CountsByGpu(self._gpus, self)
