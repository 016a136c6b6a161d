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

from solvers.baselines.whole.seats import ROUNDING_SHARE, WholeFleet, count_needed, sort_by_priority
from solvers.integer_program import IntegerProgram
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Problem, Service

LEAST_SLICES = 8  # of each service's load, as Melange's slice factor has it
MOST_NODES = 2_000  # of branch and bound: the same answer on every machine
WORK = 1_400_000  # nodes times variables, of a larger program
GAP_SHARE = 1e-6  # of the price, in which unserved load weighs far more than GPUs


@dataclass(frozen=True, slots=True)
class PoolMix:
    """The instances of a service in one pool."""

    service: Service
    shape: FleetShape
    count: int


def plan_melange(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns Melange's plan; it depends on the rates, and keeps what runs on a GPU of the same type."""
    fleet = WholeFleet(problem)
    shapes = {service.name: fleet.shapes(service) for service in sort_by_priority(problem)}
    free = {pool: len(fleet.rooms.idle_in(pool)) for pool in fleet.rooms.pools}
    for mix in cheapest_mixes(problem, shapes, free):
        fleet.seat(mix.service, mix.shape, mix.count)
    return fleet.draft("the cheapest GPUs for slices of each load, by an integer program")


def cheapest_mixes(
    problem: Problem, shapes: Mapping[str, Sequence[FleetShape]], free: Mapping[GpuPool, int]
) -> list[PoolMix]:
    """Returns the GPUs that each service takes of each pool: none where the program found no answer in its nodes."""
    program = IntegerProgram()
    counts: list[tuple[Service, FleetShape, int]] = []
    for name, mine in shapes.items():
        service = problem.services[name]
        number = slices_of(service, mine)
        price = problem.policy.price_unserved(service) * max(1.0, service.rate_per_second) / number
        unserved = program.variable(price, number, is_whole=True)
        is_served = program.variable(0.0, 1, is_whole=True)
        slices: list[int] = []
        gpus: list[int] = []
        for shape in mine:
            slices.append(program.variable(0.0, number, is_whole=True))
            most = min(free[shape.pool], max(count_needed(service, shape), service.min_instances))
            gpus.append(program.variable(shape.pool.price_per_hour, most, is_whole=True))
            a_slice = service.rate_per_second / number * (1 - ROUNDING_SHARE)
            program.row([(gpus[-1], shape.rate_per_second / a_slice), (slices[-1], -1.0)], least=0.0)
            counts.append((service, shape, gpus[-1]))
        program.row([(at, 1.0) for at in (*slices, unserved)], least=number, most=number)
        program.row([*((at, -1.0) for at in slices), (is_served, number)], least=0.0)
        program.row([*((at, 1.0) for at in gpus), (is_served, -float(service.min_instances))], least=0.0)
    for pool, count in free.items():
        program.row([(at, 1.0) for _, shape, at in counts if shape.pool == pool], most=count)
    nodes = min(MOST_NODES, WORK // max(1, len(program.upper)))
    found = program.solve(nodes, GAP_SHARE)
    taken = [(service, shape, round(found.values[at])) for service, shape, at in counts] if found else []
    return [PoolMix(*mix) for mix in taken if mix[2]]


def slices_of(service: Service, shapes: Sequence[FleetShape]) -> int:
    """Returns the number of slices of a service's load: so many that each fits on any of its GPUs."""
    smallest = min((shape.rate_per_second for shape in shapes), default=service.rate_per_second)
    return max(LEAST_SLICES, ceil(service.rate_per_second / smallest))
