"""Keeps what the tenant's limit, the power budget and the nodes still allow while a service gets seats."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from solvers.planning.explain.free_capacity import FreeCapacity
from solvers.planning.explain.options import SURE_SHARE, ServiceTerms, ShapeOptions, Way
from solvers.planning.grids import SM, Floats
from solvers.planning.problem import Demand

ENOUGH_SHARE = 1 - 1e-9  # of a rate
SMS = np.arange(SM)


@dataclass(frozen=True, slots=True)
class ShapeWorth:
    """Ranks shapes: by the rate they carry, at most the one that is needed, or by that rate for each SM."""

    rate: float
    is_densest: bool

    def of(self, cap: Floats) -> Floats:
        """Returns the worth of caps by [row, SM%]."""
        worth: Floats = cap / np.maximum(SMS, 1) if self.is_densest else np.minimum(cap, self.rate)
        return worth


@dataclass
class CarriedRate:
    """The rate that instances carry together; the `least` largest must carry half an even share each."""

    caps: list[float]  # rising
    total: float
    least: int
    rate: float

    @classmethod
    def by(cls, own: Sequence[float], terms: ServiceTerms) -> CarriedRate:
        """Begins with the instances that the service keeps."""
        return cls(sorted(own), sum(own), max(terms.service.min_instances, 1), terms.service.rate_per_second)

    def is_enough(self) -> bool:
        if len(self.caps) < self.least:
            return False
        most = self.total if self.least < 2 else min(self.total, 2 * len(self.caps) * self.caps[-self.least])
        return most >= self.rate * ENOUGH_SHARE

    def add(self, cap: float) -> None:
        insort(self.caps, cap)
        self.total += cap


@dataclass
class RemainingLimits:
    """The resources that one more instance of a service may take."""

    capacity: FreeCapacity
    is_dedicated: bool
    gpus: float
    price: float
    watts: float  # infinite without a budget
    cores_used: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    host_used: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def after(cls, capacity: FreeCapacity, terms: ServiceTerms) -> RemainingLimits:
        """Begins with what the others leave."""
        tenant, limit, budget_w = terms.service.tenant, terms.limit, terms.policy.power_budget_w
        gpus = price = inf
        if limit and limit.gpus is not None:
            gpus = limit.gpus * SURE_SHARE - capacity.gpus_taken.get(tenant, 0.0)
        if limit and limit.price_per_hour is not None:
            price = limit.price_per_hour * SURE_SHARE - capacity.price_taken.get(tenant, 0.0)
        watts = inf if budget_w is None else budget_w - capacity.drawn_w
        return cls(capacity, terms.service.is_dedicated, gpus, price, watts)

    def is_used_up(self) -> bool:
        """Returns whether no shape at all is allowed any more."""
        return self.gpus < self._share(1) or self.watts <= 0

    def admits(self, options: ShapeOptions, gpu: int) -> bool:
        """Returns whether the limits allow the smallest shape of a GPU; the node is checked by `has_room`."""
        if self.watts < inf and options.least_w[gpu] > self.watts:
            return False
        share = self._share(options.least_sm[gpu])
        return share <= self.gpus and share * options.group.gpus[gpu].node.price_per_hour <= self.price

    def allows(self, options: ShapeOptions, row: int, sm: int) -> bool:
        share = self._share(sm)
        return bool(
            share <= self.gpus
            and share * options.group.price_per_hour[options.gpu[row]] <= self.price
            and (self.watts == inf or options.busy_w[row, sm] <= self.watts)
        )

    def has_room(self, node: str, options: ShapeOptions, row: int) -> bool:
        """Returns whether the node has the CPU cores and the host memory of a shape."""
        demand = _demand(options, row)
        return bool(
            demand.cpu_cores <= self.capacity.cpu_cores[node] - self.cores_used[node]
            and demand.host_memory_gib <= self.capacity.host_memory_gib[node] - self.host_used[node]
        )

    def best_of(
        self, options: ShapeOptions, rows: list[int], node_price: float, worth: ShapeWorth
    ) -> tuple[int, int] | None:
        """Returns row and SM% of the best shape that is allowed, the smallest of those that are equal."""
        share = np.ones(SM) if self.is_dedicated else SMS / 100
        inside = (share <= self.gpus) & (share * node_price <= self.price)
        if not inside.any():
            return None
        cap = np.where(inside[None, :], options.cap[rows], 0.0)
        if self.watts < inf:
            cap = np.where(options.busy_w[rows] <= self.watts, cap, 0.0)
        values = worth.of(cap)
        most = float(values.max())
        if not most > 0:
            return None
        at, sm = np.nonzero(values >= most)
        least = int(np.argmin(sm))
        return rows[at[least]], int(sm[least])

    def take(self, node: str, options: ShapeOptions, row: int, sm: int) -> None:
        """Subtracts a shape on a GPU of this node."""
        share, demand = self._share(sm), _demand(options, row)
        self.gpus -= share
        self.price -= share * options.group.gpus[int(options.gpu[row])].node.price_per_hour
        if self.watts < inf:
            self.watts -= float(options.busy_w[row, sm])
        self.cores_used[node] += demand.cpu_cores
        self.host_used[node] += demand.host_memory_gib

    def _share(self, sm: int) -> float:
        return 1.0 if self.is_dedicated else sm / 100


def _demand(options: ShapeOptions, row: int) -> Demand:
    way: Way = options.ways[options.way[row]]
    return way.profile.demand
