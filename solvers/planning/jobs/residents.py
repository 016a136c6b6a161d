"""The instances of a plan as columns, with the slow-down that each may suffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solvers.latency import limits
from solvers.latency.kernels import busy_at
from solvers.latency.rates import none_left
from solvers.planning.jobs.arrays import Floats, Ints
from solvers.planning.jobs.kernels import KEPT, most_slowdown
from solvers.planning.problem import Curve, Instance, Problem

Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What slows each resident: the pressure of the others, and strangers on spare SMs where shares are priced."""

    pressure: Floats
    spare_sm: Floats
    share_pressure: float


class Residents:
    """Instances as columns, in the order given."""

    def __init__(self, problem: Problem, instances: Sequence[Instance], number_of: dict[Place, int]) -> None:
        self.problem, policy = problem, problem.policy
        known: dict[tuple[str, str, str, int, int, float], tuple[float, ...]] = {}
        rows: dict[tuple[float, int], int] = {}
        table = np.zeros((len(instances), 16))
        for line, instance in enumerate(instances):
            service = problem.services[instance.service]
            gpu_type = problem.nodes[instance.node].gpu_type
            key = (service.model, instance.variant, gpu_type, instance.batch, instance.sm_percent, instance.clock_mhz)
            if key not in known:
                known[key] = _shape(problem, key)
            row = rows.setdefault((service.percentile, instance.batch), len(rows))
            table[line, :3] = (number_of[instance.place], instance.sm_percent, instance.memory_gib)
            table[line, 3:5] = (instance.rate_per_second, instance.batch)
            table[line, 5:8] = (service.slo_ms, row, service.is_dedicated)
            table[line, 8:] = known[key]
        columns = table.T
        self.gpu: Ints = columns[0].astype(np.int64)
        self.sm, self.memory_gib, self.rate, self.batch = (np.ascontiguousarray(column) for column in columns[1:5])
        self.slo_ms, self.is_dedicated = np.ascontiguousarray(columns[5]), columns[7] > 0
        self.row: Ints = columns[6].astype(np.int64)
        self.base_ms, self.pressure, self.sensitivity, self.watts = (columns[n].copy() for n in range(8, 12))
        self.clock, self.cpu_cores, self.host_memory_gib, self.top_w = (columns[n].copy() for n in range(12, 16))
        self.rows: Floats = np.array([limits(percentile, [batch]).loads[batch] for percentile, batch in rows])
        self.margin, self.utilization = 1 + policy.exec_margin, policy.utilization

    def slowdown(self, among: Neighbours) -> Floats:
        """Returns the slow-down of each without jobs."""
        outside = 1 + self.sensitivity * among.share_pressure * among.spare_sm / 100
        found: Floats = (1 + self.sensitivity * among.pressure) * outside
        return found

    def bearable(self, among: Neighbours) -> Floats:
        """Returns the slow-down at which each keeps its SLO and, if energy has a price, draws no more than now."""
        now = self.slowdown(among)
        most = np.zeros(len(self.gpu))
        if len(most):
            most_slowdown(
                self.base_ms, self.rate, self.slo_ms, self.batch, self.row, self.rows, self.margin, self.utilization,
                most,
            )  # fmt: skip
        most *= 1 - KEPT
        if self.problem.policy.energy_price_per_kwh > 0:
            # Slower services are busy longer and would pay for that energy; jobs may not change resourceCost.
            most = np.where(self.watts > 0, np.minimum(most, now), most)
        return np.maximum(most, now)

    def busy(self, among: Neighbours) -> Floats:
        """Returns the fraction of time that each is busy if nothing waits for its batch to fill."""
        loads = self.rate * self.base_ms * self.slowdown(among) / self.batch / 1000
        tables = none_left()
        return np.array(
            [busy_at(tables[int(batch)], int(batch), load) for batch, load in zip(self.batch, loads, strict=True)]
        )


def _shape(problem: Problem, key: tuple[str, str, str, int, int, float]) -> tuple[float, ...]:
    """Returns what instances of this shape have in common; the first is the exec alone at the GPU's clock."""
    model, variant, gpu_type, batch, sm_percent, clock_mhz = key
    profile = problem.profiles[model, variant, gpu_type]
    demand = profile.demand
    slower = problem.gpu_types[gpu_type].top_clock_mhz / clock_mhz
    top_w = at(demand.power_w, sm_percent)
    return (
        at(profile.latency_ms[batch], sm_percent) * slower**demand.clock_exponent,
        at(demand.pressure, sm_percent), demand.sensitivity, top_w * slower**-demand.power_exponent, slower,
        demand.cpu_cores, demand.host_memory_gib, top_w,
    )  # fmt: skip


def at(curve: Curve, sm_percent: float) -> float:
    """Interpolates between the points of a curve; the result is flat beyond them."""
    return float(np.interp(sm_percent, [point[0] for point in curve], [point[1] for point in curve]))
