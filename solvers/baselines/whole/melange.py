"""Melange (Griggs et al., 2024): slices of each load on GPU types, and the cheapest whole numbers of GPUs for them.

A service's load is divided into equal slices; each slice goes to one type, of which the service has as many GPUs as its
slices there need: minimise sum price x GPUs, subject to GPUs >= slices x rate of a slice / what a GPU carries within
the SLO. Melange plans one model, whose requests fall into buckets by size; here each service is one bucket. Ours: the
fleet has so many GPUs of each type, slices that find none are unserved at the policy's price, a slice is no more than
any of its GPUs carries, a service has its minInstances, and HiGHS solves the program, as exactly as its nodes allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from solvers.baselines.whole.seats import ROUNDING_SHARE, WholeFleet, in_order, needed
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Problem, Service

LEAST_SLICES = 8  # of each service's load, as Melange's slice factor has it
MOST_NODES = 2_000  # of branch and bound: the same answer on every machine
GAP_SHARE = 1e-6  # of the price, in which unserved load weighs far more than GPUs
MOST_SECONDS = 20.0  # a guard: the program of a fleet takes far less


@dataclass(frozen=True, slots=True)
class PoolMix:
    """The instances of a service in one pool."""

    service: Service
    shape: FleetShape
    count: int


def plan_melange(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns Melange's plan; it depends on the rates, and keeps what runs on a GPU of the same type."""
    fleet = WholeFleet(problem)
    shapes = {service.name: fleet.shapes(service) for service in in_order(problem)}
    free = {pool: len(fleet.rooms.idle_in(pool)) for pool in fleet.rooms.pools}
    for mix in cheapest_mixes(problem, shapes, free):
        fleet.seat(mix.service, mix.shape, mix.count)
    return fleet.draft("the cheapest GPUs for slices of each load, by an integer program")


def cheapest_mixes(
    problem: Problem, shapes: Mapping[str, Sequence[FleetShape]], free: Mapping[GpuPool, int]
) -> list[PoolMix]:
    """Returns the GPUs that each service takes of each pool: none where the program found no answer in its nodes."""
    program = _SliceProgram()
    counts: list[tuple[Service, FleetShape, int]] = []
    for name, mine in shapes.items():
        service = problem.services[name]
        number = slices_of(service, mine)
        price = problem.policy.unserved_price * service.priority / 100 * max(1.0, service.rate_per_second) / number
        unserved = program.variable(price, number)
        is_served = program.variable(0.0, 1)
        slices: list[int] = []
        gpus: list[int] = []
        for shape in mine:
            slices.append(program.variable(0.0, number))
            most = min(free[shape.pool], max(needed(service, shape), service.min_instances))
            gpus.append(program.variable(shape.pool.price_per_hour, most))
            a_slice = service.rate_per_second / number * (1 - ROUNDING_SHARE)
            program.row({gpus[-1]: shape.rate_per_second / a_slice, slices[-1]: -1.0}, least=0.0)
            counts.append((service, shape, gpus[-1]))
        program.row(dict.fromkeys((*slices, unserved), 1.0), least=number, most=number)
        program.row({**dict.fromkeys(slices, -1.0), is_served: number}, least=0.0)
        program.row({**dict.fromkeys(gpus, 1.0), is_served: -float(service.min_instances)}, least=0.0)
    for pool, count in free.items():
        program.row({at: 1.0 for _, shape, at in counts if shape.pool == pool}, most=count)
    values = program.solved()
    if not values:
        return []
    return [PoolMix(service, shape, values[at]) for service, shape, at in counts if values[at]]


def slices_of(service: Service, shapes: Sequence[FleetShape]) -> int:
    """Returns the number of slices of a service's load: so many that each fits on any of its GPUs."""
    smallest = min((shape.rate_per_second for shape in shapes), default=service.rate_per_second)
    return max(LEAST_SLICES, ceil(service.rate_per_second / smallest))


class _SliceProgram:
    """Collects whole variables from 0 up, and rows, for HiGHS."""

    def __init__(self) -> None:
        self._price: list[float] = []
        self._most: list[float] = []
        self._rows: list[tuple[Mapping[int, float], float, float]] = []

    def variable(self, price: float, most: float) -> int:
        self._price.append(price)
        self._most.append(most)
        return len(self._price) - 1

    def row(self, terms: Mapping[int, float], least: float = -np.inf, most: float = np.inf) -> None:
        self._rows.append((terms, least, most))

    def solved(self) -> list[int]:
        """Returns the values of the best answer in the limits; none where there is no answer."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # takes a third of a second
        from scipy.sparse import csr_array

        if not self._price:
            return []
        terms = [(row, at, factor) for row, (terms, _, _) in enumerate(self._rows) for at, factor in terms.items()]
        rows, columns, factors = zip(*terms, strict=True)
        matrix = csr_array((factors, (rows, columns)), shape=(len(self._rows), len(self._price)))
        limits = LinearConstraint(matrix, [least for _, least, _ in self._rows], [most for _, _, most in self._rows])
        found = milp(
            np.array(self._price), integrality=np.ones(len(self._price)), bounds=Bounds(0, np.array(self._most)),
            constraints=limits,
            options={"node_limit": MOST_NODES, "mip_rel_gap": GAP_SHARE, "time_limit": MOST_SECONDS},
        )  # fmt: skip
        return [] if found.x is None else [round(value) for value in found.x]
