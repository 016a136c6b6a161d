"""Computes what a plan of services leaves to jobs: SMs, memory, watts, and the pressure that each service bears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solvers.planning.fleet.grids import SM, Floats, Ints, everywhere, pressures_everywhere
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.jobs.arrays import SEATS, JobBoard, JobFleet, Jobs, board
from solvers.planning.jobs.kernels import KEPT
from solvers.planning.jobs.residents import Neighbours, Residents
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.judge.readings import value_at
from solvers.planning.pressures import Pressure, PressureCurve, Pressures, slow_each
from solvers.planning.problem import Curve, Instance, Job, Node, Place, PlacedJob, Policy, Problem, WrongProblem

# A type of GPU, the templates that its nodes offer, and the watts that one of the GPUs may draw.
Site: TypeAlias = tuple[str, frozenset[str] | None, float]


@dataclass(frozen=True)
class Room:
    """GPUs and jobs by number, and the arrays that the loops read of them."""

    problem: Problem
    places: tuple[Place, ...]
    jobs: tuple[Job, ...]
    fleet: JobFleet
    work: Jobs
    nodes: tuple[str, ...]
    cpu_cores: Floats  # [node] left by services
    host_memory_gib: Floats
    free_w: float  # of the fleet's budget, less what services draw on average
    opened_with: tuple[tuple[int, ...], ...]  # [GPU] those paid with it: itself, or all of a node billed whole
    number_of: dict[Place, int]
    stays: dict[int, PlacedJob]  # jobs that run and are not preemptible

    def board(self) -> JobBoard:
        """Returns a board on which no job runs."""
        return board(self.fleet, len(self.jobs), self.cpu_cores.copy(), self.host_memory_gib.copy(), self.free_w)


def room(problem: Problem, instances: Sequence[Instance]) -> Room:
    """Collects everything that job placement reads from a valid plan of services."""
    names = sorted(problem.nodes)
    nodes = [problem.nodes[name] for name in names]
    places = tuple((node.name, index) for node in nodes for index in node.gpus)
    number_of = {place: number for number, place in enumerate(places)}
    for instance in instances:
        if instance.place not in number_of:
            raise WrongProblem(f"instance {instance.id} runs on {instance.node}/{instance.gpu}, which is not there")
    rooms = FleetRooms(problem, instances, ())
    sites, kind = _number_sites(problem, nodes)
    fleet, drawn_w = _fleet(problem, nodes, rooms, number_of, kind)
    jobs = tuple(problem.jobs[name] for name in sorted(problem.jobs))
    stays = _stays(problem, jobs)
    numbers = {name: number for number, name in enumerate(problem.nodes)}
    of_node = [numbers[name] for name in names]
    budget_w = problem.policy.power_budget_w
    return Room(
        problem=problem,
        places=places,
        jobs=jobs,
        fleet=fleet,
        work=_work(problem, jobs, sites, stays),
        nodes=tuple(names),
        cpu_cores=rooms.commons.cpu_cores[of_node] + KEPT,
        host_memory_gib=rooms.commons.host_memory_gib[of_node] + KEPT,
        free_w=np.inf if budget_w is None else budget_w - drawn_w,
        opened_with=_opened_with(problem, nodes),
        number_of=number_of,
        stays=stays,
    )


def _fleet(
    problem: Problem, nodes: Sequence[Node], rooms: FleetRooms, number_of: Mapping[Place, int], kind: Ints
) -> tuple[JobFleet, float]:
    """Returns what services leave of each GPU, and the watts that the fleet draws without jobs if they are limited."""
    policy, gpu_types = problem.policy, problem.gpu_types
    node_of = np.repeat(np.arange(len(nodes)), [node.gpu_count for node in nodes]).astype(np.int64)
    residents = Residents(problem, rooms.gpus, number_of)
    gpus, on, at = len(node_of), residents.gpu, [rooms.numbers[place] for place in number_of]

    def summed(values: Floats) -> Floats:
        return np.bincount(on, values, gpus).astype(np.float64)

    spare, pressure = rooms.free_sm[at], rooms.pressure[at]
    clock = np.ones(gpus)
    clock[on] = residents.clock
    price = _opening_prices(problem, nodes, np.bincount(node_of[on], minlength=len(nodes)))[node_of]
    price[on] = 0.0
    sharing = policy.share_pressure if policy.pricing == "share" else 0.0
    among = Neighbours(pressure[on] - residents.pressure, spare[on].astype(np.float64), sharing)
    most = residents.bearable(among, _staying_pressure(problem, number_of, gpus)[on])
    more_w, drawn_w = np.zeros(gpus, np.complex128), 0.0
    if policy.power_budget_w is not None:
        busy = residents.watts * residents.busy(among)
        drawn_w = float(busy.sum()) + sum(gpu_types[node.gpu_type].idle_w * node.gpu_count for node in nodes)
        # Slower by a factor, it starts no more often, so it is busy longer by no more than this factor.
        per = busy / (1 + slow_each(residents.sensitivity, among.pressure))
        more_w = summed(per * residents.sensitivity.real) + 1j * summed(per * residents.sensitivity.imag)
    order = np.argsort(on, kind="stable")
    fleet = JobFleet(
        kind=kind,
        node=node_of,
        spare=np.maximum(spare, 0),
        memory_gib=rooms.free_gib[at],
        watts=rooms.free_w[at] + KEPT,
        clock=clock,
        pressure=pressure,
        bears=_bears(gpus, residents, most, among),
        more_w=more_w,
        seats=_seats(problem.policy, rooms.clients[at], residents),
        price=price,
        start=np.searchsorted(on[order], np.arange(gpus + 1)).astype(np.int64),
        sensitivity=residents.sensitivity[order],
        beside=among.pressure[order],
        most=most[order],
        share_pressure=sharing,
    )
    return fleet, drawn_w


def _staying_pressure(problem: Problem, number_of: Mapping[Place, int], gpus: int) -> Pressures:
    """Returns by GPU the pressure of the running jobs that must stay, with a margin for rounding."""
    found = np.zeros(gpus, np.complex128)
    for placed in problem.state.jobs if problem.state else ():
        job, at = problem.jobs[placed.job], number_of.get(placed.place)
        profile = job.profiles.get(problem.nodes[placed.node].gpu_type)
        if at is not None and profile and not job.is_preemptible:
            found[at] += value_at(profile.demand.pressure, placed.sm_percent) + 2 * KEPT * (1 + 1j)
    return found


def _sites_of(problem: Problem, node: Node, *, by_templates: bool) -> list[Site]:
    """Returns by GPU what decides which jobs it may run: its type, its watts, and what its node offers of templates."""
    templates = node.templates if by_templates else None
    kind = problem.gpu_types[node.gpu_type]
    if not node.caps_w:
        return [(kind.name, templates, kind.max_w)] * node.gpu_count
    return [(kind.name, templates, node.type_at(index, kind).max_w) for index in node.gpus]


def _number_sites(problem: Problem, nodes: Sequence[Node]) -> tuple[list[Site], Ints]:
    """Returns the different sites in the order of their types, at least one of each, and the number of each GPU's."""
    by_templates = any(job.template for job in problem.jobs.values())
    by_gpu = [site for node in nodes for site in _sites_of(problem, node, by_templates=by_templates)]
    found = set(by_gpu)
    unused = problem.gpu_types.keys() - {gpu_type for gpu_type, _, _ in found}
    found |= {(name, None, problem.gpu_types[name].max_w) for name in unused}
    sites = sorted(found, key=lambda site: (site[0], site[1] is not None, sorted(site[1] or ()), site[2]))
    numbers = {site: number for number, site in enumerate(sites)}
    return sites, np.array([numbers[site] for site in by_gpu], np.int64)


def _opening_prices(problem: Problem, nodes: Sequence[Node], residents: Ints) -> Floats:
    """Returns what opening a GPU of each node costs a job, where services have so many residents.

    On a node that is billed whole it is the price of all its GPUs, and nothing where services run on one of them.
    """
    prices = []
    for node, count in zip(nodes, residents.tolist(), strict=True):
        whole = is_billed_whole(node, problem.policy)
        is_free = node.is_paid_anyway or (whole and count > 0)
        prices.append(0.0 if is_free else whole_price(node) if whole else node.price_per_hour)
    return np.array(prices, dtype=np.float64)


def _opened_with(problem: Problem, nodes: Sequence[Node]) -> tuple[tuple[int, ...], ...]:
    """Returns for each GPU all those whose price is paid together with its own, itself among them."""
    found: list[tuple[int, ...]] = []
    for node in nodes:
        gpus = tuple(range(len(found), len(found) + node.gpu_count))
        found += [gpus] * len(gpus) if is_billed_whole(node, problem.policy) else [(gpu,) for gpu in gpus]
    return tuple(found)


def _seats(policy: Policy, clients: Ints, residents: Residents) -> Ints:
    """Returns how many jobs each GPU may hold."""
    seats = np.clip(policy.clients_per_gpu - clients, 0, min(policy.jobs_per_gpu, SEATS))
    seats[residents.gpu[residents.is_dedicated]] = 0
    if not policy.share_across_tenants:  # a job alone on its GPU shares it with no other tenant
        seats = np.where(clients > 0, 0, np.minimum(seats, 1))
    return seats.astype(np.int64)


def _bears(gpus: int, residents: Residents, most: Floats, among: Neighbours) -> Pressures:
    """Returns what jobs may add on each GPU of either pressure while the other stays, where shares are not priced."""
    found = np.full((2, gpus), np.inf)
    left = most - 1 - slow_each(residents.sensitivity, among.pressure)
    parts = (residents.sensitivity.real, residents.sensitivity.imag)
    for bears, sensitivity in zip(found, parts if not among.share_pressure else (), strict=False):
        feels = sensitivity > 0
        np.minimum.at(bears, residents.gpu[feels], left[feels] / sensitivity[feels] - KEPT)
        np.maximum(bears, 0.0, out=bears)
    pairs: Pressures = found.T.copy().view(np.complex128).ravel()
    return pairs


def _work(problem: Problem, jobs: Sequence[Job], sites: Sequence[Site], stays: dict[int, PlacedJob]) -> Jobs:
    """Returns the jobs as arrays. A job that stays has a profile of its own, on its type alone, at the SM% it has."""
    now = problem.state.now if problem.state else None
    profile = np.full((len(jobs), len(sites)), -1, np.int64)
    need = np.zeros(len(jobs))
    found: list[tuple[Floats, Pressures, Floats, tuple[float, ...], Pressure]] = []
    number_of: dict[tuple[int, ...], int] = {}
    drawn: dict[Curve, Floats] = {}  # many jobs share their curves of watts and pressure
    pressing: dict[PressureCurve, Pressures] = {}

    def values(curve: Curve) -> Floats:
        if curve not in drawn:
            drawn[curve] = everywhere([curve])[0]
        return drawn[curve]

    for number, job in enumerate(jobs):
        staying = stays.get(number)
        if job.deadline is not None and now is not None and staying is None:
            left = (job.deadline - now).total_seconds()
            need[number] = job.units / left if left > 0 else 1e300
        for place, (gpu_type, templates, _) in enumerate(sites):
            if job.template is not None and templates is not None and job.template not in templates:
                continue
            job_profile = job.profiles.get(gpu_type)
            if job_profile is None or (staying and problem.nodes[staying.node].gpu_type != gpu_type):
                continue
            low, high = job_profile.units_per_second[0][0], job_profile.units_per_second[-1][0]
            memory = job_profile.memory_gib
            if staying:
                low = high = min(max(staying.sm_percent, low), high)
                memory = max(memory, staying.memory_gib)
            key = (id(job_profile), low, high, hash(memory))
            if key not in number_of:
                number_of[key] = len(found)
                demand = job_profile.demand
                numbers = (low, high, memory, demand.cpu_cores, demand.host_memory_gib,
                           demand.clock_exponent, demand.power_exponent)  # fmt: skip
                if demand.pressure not in pressing:
                    pressing[demand.pressure] = pressures_everywhere(demand.pressure)
                pace, power = values(job_profile.units_per_second), values(demand.power_w)
                found.append((pace, pressing[demand.pressure], power, numbers, demand.sensitivity))
            profile[number, place] = number_of[key]
    count = len(found)
    paces, power = (np.array([row[n] for row in found]).reshape(count, SM) for n in (0, 2))
    pressure = np.array([row[1] for row in found], np.complex128).reshape(count, SM)
    scalars = np.array([row[3] for row in found]).reshape(count, 7).T.copy()
    low, high = scalars[0].astype(np.int64), scalars[1].astype(np.int64)
    at = np.arange(SM)
    within = (at >= low[:, None]) & (at <= high[:, None])

    def least(values: Floats) -> Floats:
        found: Floats = np.min(values, axis=1, initial=np.inf, where=within)
        return found

    return Jobs(
        profile, need, low, high, np.where(within, paces, 0.0), pressure, power, scalars[2], scalars[3], scalars[4],
        np.array([row[4] for row in found], np.complex128), scalars[5], scalars[6],
        np.maximum.accumulate(np.where(within, paces, 0.0), axis=1),
        least(pressure.real) + 1j * least(pressure.imag),
    )  # fmt: skip


def _stays(problem: Problem, jobs: Sequence[Job]) -> dict[int, PlacedJob]:
    running = {placed.job: placed for placed in (problem.state.jobs if problem.state else ())}
    return {
        number: running[job.name] for number, job in enumerate(jobs) if job.name in running and not job.is_preemptible
    }
