"""Seats jobs on several GPUs: whole ones of one node, linked with each other, on which no service runs.

They are seated before all other jobs, the most expensive to leave waiting first; each keeps its GPUs or gets those that
cost least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from solvers.planning.beside import Holder, take_whole_gpus
from solvers.planning.fleet.rooms import FleetRooms, WholeNeed
from solvers.planning.jobs.placement import may_open, penalty
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.judge.readings import value_at
from solvers.planning.judge.tolerances import SUM_SHARE
from solvers.planning.plan import Unplaced
from solvers.planning.problem import Instance, Job, JobProfile, Node, Place, PlacedJob, Problem

WHOLE = 100  # SM%
NEAR_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class WideJobs:
    """The jobs on several GPUs with their seats, those that wait with the reason, and what both cost an hour."""

    placed: tuple[PlacedJob, ...]
    unplaced: tuple[Unplaced, ...]
    cost: float


def wide_jobs(problem: Problem) -> list[Job]:
    """Returns the jobs on several GPUs, the most expensive to leave waiting first."""
    found = [job for job in problem.jobs.values() if job.gpus > 1]
    return sorted(found, key=lambda job: (-penalty(job, problem.policy), job.name))


def seat_wide_jobs(problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob] = ()) -> WideJobs:
    """Returns seats beside these instances, and these other jobs, for the jobs on several GPUs."""
    seating = _Seating(problem, instances, [*_staying(problem, is_wide=False), *jobs])
    running = {placed.job: placed for placed in problem.state.jobs} if problem.state else {}
    placed, unplaced, cost = list[PlacedJob](), list[Unplaced](), 0.0
    waiting = []
    for job in wide_jobs(problem):  # what runs goes first: it has its GPUs
        seat = seating.kept(job, running[job.name]) if job.name in running else None
        if seat:
            placed.append(seat)
        else:
            waiting.append(job)
    for job in waiting:
        best = min(seating.offers(job), default=None, key=lambda offer: offer.order)
        if best is None or best.cost > penalty(job, problem.policy) * (1 + NEAR_SHARE):
            unplaced.append(Unplaced(job.name, seating.why_not(job, best), seating.relaxation(job, best)))
            cost += penalty(job, problem.policy)
        else:
            placed.append(seating.take(job, best))
    return WideJobs(tuple(placed), tuple(unplaced), cost + seating.cost)


def leave_out_wide_jobs(problem: Problem) -> Problem:
    """Returns what is left for a planner that knows no jobs on several GPUs: all but those that must stay."""
    if not wide_jobs(problem):
        return problem
    # Services pay for nodes, jobs do not.
    return _leave_to_others(problem, _staying(problem, is_wide=True), are_paid=False)


def _staying(problem: Problem, *, is_wide: bool) -> list[PlacedJob]:
    running = problem.state.jobs if problem.state else ()
    jobs = problem.jobs
    return [
        placed for placed in running if (jobs[placed.job].gpus > 1) == is_wide and not jobs[placed.job].is_preemptible
    ]


def leave_out_wide_seats(problem: Problem, placed: Sequence[PlacedJob]) -> Problem:
    """Returns the problem of all other jobs: without these seats, and with what they leave of their nodes."""
    return _leave_to_others(problem, placed, are_paid=True)


def _leave_to_others(problem: Problem, placed: Sequence[PlacedJob], *, are_paid: bool) -> Problem:
    holders = [Holder(seat.places, _need(_profile_of(problem, seat))) for seat in placed]
    rest = take_whole_gpus(problem, holders, are_paid=are_paid)
    jobs = {name: job for name, job in problem.jobs.items() if job.gpus == 1}
    state = rest.state
    if state is not None:
        state = replace(state, jobs=tuple(job for job in state.jobs if job.job in jobs))
    return replace(rest, jobs=jobs, state=state)


def _profile_of(problem: Problem, seat: PlacedJob) -> JobProfile:
    return problem.jobs[seat.job].profiles[problem.nodes[seat.node].gpu_type]


def _watts(profile: JobProfile) -> float:
    """Returns what each of its GPUs draws above idle."""
    return value_at(profile.demand.power_w, WHOLE)


def _need(profile: JobProfile) -> WholeNeed:
    return WholeNeed(
        profile.memory_gib, _watts(profile), profile.demand.cpu_cores, profile.demand.host_memory_gib
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Offer:
    """GPUs that a job may have, and what they add an hour."""

    node: str
    gpus: tuple[int, ...]
    price: float
    cost: float  # the price, and energy
    pace: float  # units a second
    displaced: int  # running jobs that would have to leave
    left: int  # GPUs of the link that stay free

    @property
    def order(self) -> tuple[object, ...]:
        return round(self.cost, 9), self.displaced, -self.pace, self.left, self.node, self.gpus


class _Seating:
    """The room that services and other jobs leave on each node, less what was taken meanwhile."""

    def __init__(self, problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> None:
        self.problem = problem
        self.cost = 0.0
        others = {placed.job: placed for placed in jobs}.values()
        self._rooms = FleetRooms(problem, instances, others)
        self._paid = {instance.node for instance in instances}  # of those billed whole: by services, or opened here
        self._watts_left = _watts_left(problem, instances)
        self._running: dict[Place, list[Job]] = defaultdict(list)  # on one GPU; they may be stopped
        for placed in problem.state.jobs if problem.state else ():
            if problem.jobs[placed.job].gpus == 1:
                self._running[placed.place].append(problem.jobs[placed.job])
        for placed in others:
            there = problem.jobs[placed.job].profiles.get(problem.nodes[placed.node].gpu_type)
            if there:
                self._watts_left -= value_at(there.demand.power_w, placed.sm_percent)

    def kept(self, job: Job, running: PlacedJob) -> PlacedJob | None:
        """Keeps a job where it runs, if its GPUs are free and it may be there; None if not."""
        node = self.problem.nodes.get(running.node)
        if node is None or running.degree != job.gpus or not all(node.has_gpu(gpu) for _, gpu in running.places):
            return None
        stays = not job.is_preemptible
        offer = self._offer(job, node, running.gpus, 0, stays=stays)
        if offer is None or not (stays or offer.cost <= penalty(job, self.problem.policy) * (1 + NEAR_SHARE)):
            return None
        return self.take(job, offer)

    def offers(self, job: Job) -> Iterator[_Offer]:
        """Yields the seats that a job may have, at most one of each group of linked GPUs."""
        for _, node in sorted(self.problem.nodes.items()):
            profile = job.profiles.get(node.gpu_type)
            if profile is None:
                continue
            for link in self._rooms.idle_links(node):
                able = [gpu for gpu in link if self._rooms.can_hold_whole([(node.name, gpu)], _need(profile))]
                free_first = sorted(able, key=lambda gpu: (len(self._running[node.name, gpu]), gpu))
                gpus = tuple(sorted(free_first[: job.gpus]))
                if len(gpus) == job.gpus and (offer := self._offer(job, node, gpus, len(able) - job.gpus)):
                    yield offer

    def take(self, job: Job, offer: _Offer) -> PlacedJob:
        """Gives a job its seat."""
        profile = job.profiles[self.problem.nodes[offer.node].gpu_type]
        self._rooms.hold_whole([(offer.node, gpu) for gpu in offer.gpus], _need(profile))
        self._paid.add(offer.node)
        self._watts_left -= job.gpus * _watts(profile)
        self.cost += offer.cost
        return PlacedJob(job.name, offer.node, offer.gpus[0], WHOLE, profile.memory_gib, offer.pace, gpus=offer.gpus)

    def why_not(self, job: Job, best: _Offer | None) -> str:
        """Says why a job waits."""
        fitting = {node.gpu_type for node in self.problem.nodes.values()} & job.profiles.keys()
        if not fitting:
            return f"the fleet has no GPU of a type in its profiles ({', '.join(sorted(job.profiles))})"
        if best is not None:
            return f"its {job.gpus} GPUs cost {best.cost:.4g} an hour, more than its wait"
        return (
            f"no node has {job.gpus} free GPUs of a type in its profiles, linked with each other, with room for it in "
            "memory, watts, CPU cores and host memory, at a price and a pace that it may have, without stopping jobs "
            "that weigh as much"
        )

    def relaxation(self, job: Job, best: _Offer | None) -> str:
        """Proposes what would help."""
        if best is not None:
            return f"maxPricePerHour: {best.price:.4g}" if best.price else "a higher priority"
        return f"a node with {job.gpus} free GPUs that are linked"

    def _offer(self, job: Job, node: Node, gpus: tuple[int, ...], left: int, *, stays: bool = False) -> _Offer | None:
        """Returns these GPUs as an offer; None if the job may not have them. One that stays does so late, and dear."""
        problem, places = self.problem, [(node.name, gpu) for gpu in gpus]
        profile = job.profiles.get(node.gpu_type)
        if (
            profile is None
            or profile.units_per_second[-1][0] < WHOLE
            or not self._rooms.can_hold_whole(places, _need(profile))
            or len({node.link_of(gpu) for gpu in gpus}) != 1
        ):
            return None
        if job.template is not None and node.templates is not None and job.template not in node.templates:
            return None
        watts, pace = _watts(profile), value_at(profile.units_per_second, WHOLE)
        if job.gpus * watts > self._watts_left or not (stays or self._is_in_time(job, pace)):
            return None
        price = self._price(node, job.gpus)
        if price > 0 and not (stays or may_open(job, price)):
            return None
        energy = job.gpus * watts / 1000 * problem.policy.energy_price_per_kwh
        leaving = [other for place in places for other in self._running[place]]
        if leaving and sum(penalty(other, problem.policy) for other in leaving) >= penalty(job, problem.policy):
            return None  # they weigh as much
        return _Offer(node.name, gpus, price, price + energy, pace, len(leaving), left)

    def _is_in_time(self, job: Job, pace: float) -> bool:
        now = self.problem.state.now if self.problem.state else None
        if job.deadline is None or now is None:
            return True
        left = (job.deadline - now).total_seconds()
        return left > 0 and pace * left >= job.units * (1 - SUM_SHARE)

    def _price(self, node: Node, gpus: int) -> float:
        """Returns what it costs an hour to open these GPUs; 0 where something else pays for them."""
        if node.is_paid_anyway:
            return 0.0
        if is_billed_whole(node, self.problem.policy):
            return 0.0 if node.name in self._paid else whole_price(node)
        return gpus * node.price_per_hour


def _watts_left(problem: Problem, instances: Sequence[Instance]) -> float:
    """Returns what services leave of the fleet's watts; infinite without a budget."""
    if problem.policy.power_budget_w is None:
        return inf
    from solvers.planning.jobs.room import room  # few fleets have a budget

    return room(replace(problem, jobs={}, state=None), instances).free_w
