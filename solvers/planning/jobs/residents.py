"""The instances of a plan as columns, with the slow-down that each may suffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from solvers.latency.kernels import busy_at
from solvers.latency.rates import none_left
from solvers.planning.availability import UsedLoad
from solvers.planning.fleet.grids import Floats, Ints, read_loads
from solvers.planning.jobs.kernels import KEPT, most_slowdown
from solvers.planning.judge.readings import JudgedGpu, watts
from solvers.planning.pressures import Pressures, slow_each
from solvers.planning.problem import Place, Problem


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The causes of slow-down: the others' pressure, and strangers on spare SMs where shares are priced."""

    pressure: Pressures
    spare_sm: Floats
    share_pressure: float


class Residents:
    """Instances as columns, GPU by GPU."""

    def __init__(self, problem: Problem, gpus: Mapping[Place, JudgedGpu], number_of: Mapping[Place, int]) -> None:
        self.problem, policy = problem, problem.policy
        rows: dict[tuple[float, float, int, UsedLoad], tuple[int, Floats]] = {}
        lines = [(number_of[place], gpu, line) for place, gpu in gpus.items() for line in gpu.residents]
        table = np.zeros((len(lines), 9))
        felt = np.zeros((len(lines), 2), np.complex128)
        for at, (number, gpu, line) in enumerate(lines):
            instance, demand = line.instance, line.demand
            service = problem.services[instance.service]
            key = (service.percentile, service.variation, instance.batch, service.used_load)
            if key not in rows:
                (loads,) = read_loads(service, policy, np.array([instance.batch]))
                rows[key] = len(rows), loads
            slower = gpu.type.top_clock_mhz / instance.clock_mhz
            base_ms = (line.alone_ms or 0.0) * slower**demand.clock_exponent
            table[at, :3] = (number, instance.rate_per_second, instance.batch)
            table[at, 3:6] = (service.slo_ms, rows[key][0], service.is_dedicated)
            table[at, 6:] = (base_ms, watts(line, gpu), slower)
            felt[at] = line.pressure, demand.sensitivity
        columns = table.T
        self.gpu: Ints = columns[0].astype(np.int64)
        self.rate, self.batch, self.slo_ms = (np.ascontiguousarray(column) for column in columns[1:4])
        self.row: Ints = columns[4].astype(np.int64)
        self.is_dedicated = columns[5] > 0
        self.base_ms, self.watts, self.clock = (np.ascontiguousarray(column) for column in columns[6:])
        self.pressure, self.sensitivity = (np.ascontiguousarray(column) for column in felt.T)
        self.margin, self.utilization = 1 + policy.exec_margin, policy.utilization
        self.rows: Floats = np.array([loads for _, loads in rows.values()])

    def slowdown(self, among: Neighbours) -> Floats:
        """Returns the slow-down of each without jobs."""
        most = np.maximum(self.sensitivity.real, self.sensitivity.imag)
        outside = 1 + most * among.share_pressure * among.spare_sm / 100
        found: Floats = (1 + slow_each(self.sensitivity, among.pressure)) * outside
        return found

    def bearable(self, among: Neighbours, staying: Pressures) -> Floats:
        """Returns the slow-down at which each keeps its SLO and, if energy has a price, draws no more than now.

        `staying` is the pressure that jobs which must stay put on each.
        """
        now = self.slowdown(replace(among, pressure=among.pressure + staying))
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
        return np.maximum(most, self.slowdown(among))

    def busy(self, among: Neighbours) -> Floats:
        """Returns the fraction of time that each is busy if nothing waits for its batch to fill."""
        loads = self.rate * self.base_ms * self.slowdown(among) / self.batch / 1000
        tables = none_left()
        return np.array(
            [busy_at(tables[int(batch)], int(batch), load) for batch, load in zip(self.batch, loads, strict=True)]
        )
