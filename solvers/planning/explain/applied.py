"""A plan with one service served anew beside all others, who keep places, shapes and rates; and the judge's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from solvers.latency import latency_at, limits, timeout_for
from solvers.latency.kernels import accepted_load
from solvers.planning.explain.ground import Ground, Place, demand_of, demand_of_job, ground, outside_of, without
from solvers.planning.explain.ground import alone_ms as alone_of
from solvers.planning.explain.seats import ENOUGH, Found, seats
from solvers.planning.judge import judge
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, Problem, Service, State
from solvers.planning.promise import keep

MOST_JUDGED = 1000  # instances


@dataclass(frozen=True, slots=True)
class Case:
    """One service of a plan, and the two grounds on which it may be served: without its instances, or beside them."""

    plan: Plan
    name: str
    others: tuple[Instance, ...]
    own: tuple[Instance, ...]
    afresh: Ground
    beside: Ground | None  # None where nothing of it runs

    def on(self, problem: Problem) -> Case:
        """The same case in a problem that differs in this service, or in limits of tenants and fleet."""
        beside = replace(self.beside, problem=problem) if self.beside else None
        return replace(self, afresh=replace(self.afresh, problem=problem), beside=beside)


def case(problem: Problem, plan: Plan, name: str, known: Ground | None = None) -> Case:
    """The case of a service in a plan, of which the whole ground may be known."""
    others = tuple(one for one in plan.instances if one.service != name)
    own = tuple(one for one in plan.instances if one.service == name)
    whole = known or ground(problem, plan.instances, plan.jobs)
    if not own:
        return Case(plan, name, others, own, whole, None)
    taken = {one.place for one in own}
    beside = replace(whole, spots=tuple(spot for spot in whole.spots if spot.place not in taken))
    return Case(plan, name, others, own, without(whole, own), beside)


@dataclass(frozen=True, slots=True)
class Offer:
    """Instances that a service gets, those that it keeps, and what all carry."""

    found: Found
    kept: tuple[Instance, ...]

    @property
    def rate_per_second(self) -> float:
        return self.found.rate_per_second


def offer(case: Case) -> Offer:
    """The most that the case's ground lets the service carry."""
    service = case.afresh.problem.services[case.name]
    best = Offer(seats(case.afresh, service), ())
    if case.beside and best.rate_per_second < service.rate_per_second * ENOUGH:
        caps = [_cap(case.beside.problem, service, one) for one in case.own]
        other = Offer(seats(case.beside, service, caps), case.own)
        if other.rate_per_second > best.rate_per_second * (1 + 1e-9):
            return other
    return best


def serves(case: Case) -> Offer | None:
    """An offer of the service's whole rate, if there is one."""
    found = offer(case)
    return found if found.rate_per_second >= case.afresh.problem.services[case.name].rate_per_second * ENOUGH else None


def applied(case: Case, offered: Offer) -> Plan | None:
    """The plan with the offer taken, where the judge finds it right."""
    problem = case.afresh.problem
    kept = [replace(one, rate_per_second=rate) for one, rate in zip(offered.kept, offered.found.own, strict=True)]
    new = offered.found.instances
    at = {one.place for one in (*case.own, *new)}
    stand, jobs = renewed(problem, (*case.others, *kept, *new), case.plan.jobs, at)
    unserved = tuple(left for left in case.plan.unserved if left.service != case.name)
    plan = Plan(tuple(stand), tuple(jobs), unserved, case.plan.unplaced)
    judged = (problem, plan) if len(stand) <= MOST_JUDGED else _part(problem, plan, {place[0] for place in at})
    return plan if judge(*judged, simulate=False, keeps=keep).is_right else None


def _part(problem: Problem, plan: Plan, nodes: set[str]) -> tuple[Problem, Plan]:
    """The touched nodes by themselves: their services at the rates they have there, limits and watts reckoned before.

    A whole judgement of a large plan, for each change that is looked at, takes longer than a plan is waited for.
    """
    stand = tuple(one for one in plan.instances if one.node in nodes)
    jobs = tuple(job for job in plan.jobs if job.node in nodes)
    rates: dict[str, float] = defaultdict(float)
    for one in stand:
        rates[one.service] += one.rate_per_second
    services = {
        name: replace(problem.services[name], rate_per_second=rate, min_instances=1) for name, rate in rates.items()
    }
    part = replace(
        problem,
        nodes={name: problem.nodes[name] for name in nodes},
        services=services,
        jobs={job.job: problem.jobs[job.job] for job in jobs},
        policy=replace(problem.policy, power_budget_w=None),
        limits={},
        state=State(problem.state.now) if problem.state else None,
    )
    return part, Plan(stand, jobs)


def _cap(problem: Problem, service: Service, one: Instance) -> float:
    """The most it may carry as it stands."""
    margin, utilization = 1 + problem.policy.exec_margin, problem.policy.utilization
    judged = one.exec_ms * margin
    row = limits(service.percentile).loads[one.batch]
    load = min(accepted_load(row, service.slo_ms / judged), utilization * margin)
    return float(max(1000 * load * one.batch / judged * (1 - 1e-9), 0.0))


def renewed(
    problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob], places: set[Place]
) -> tuple[list[Instance], list[PlacedJob]]:
    """All as they stand, with what is predicted of those on some GPUs, and their timeouts, found anew."""
    here: dict[Place, list[Instance]] = defaultdict(list)
    training: dict[Place, list[PlacedJob]] = defaultdict(list)
    for one in instances:
        if one.place in places:
            here[one.place].append(one)
    for job in jobs:
        if job.place in places:
            training[job.place].append(job)
    stand = [one for one in instances if one.place not in places]
    kept = [job for job in jobs if job.place not in places]
    for place in sorted(places):
        residents, also = here[place], training[place]
        pressures = [value_at(demand_of(problem, one).pressure, one.sm_percent) for one in residents]
        pressures += [value_at(demand_of_job(problem, job).pressure, job.sm_percent) for job in also]
        free = 100 - sum(one.sm_percent for one in residents) - sum(job.sm_percent for job in also)
        outside, total = outside_of(problem.policy, free), sum(pressures)
        top = problem.type_of(place[0]).top_clock_mhz
        for one, own in zip(residents, pressures, strict=False):
            demand = demand_of(problem, one)
            exec_ms = alone_of(problem, one) * (1 + demand.sensitivity * (total - own))
            exec_ms *= (1 + demand.sensitivity * outside) * (top / one.clock_mhz) ** demand.clock_exponent
            stand.append(_tuned(problem, one, exec_ms))
        clock = residents[0].clock_mhz if residents else top
        for job, own in zip(also, pressures[len(residents) :], strict=True):
            demand = demand_of_job(problem, job)
            profile = problem.jobs[job.job].profiles[problem.nodes[job.node].gpu_type]
            slower = (1 + demand.sensitivity * (total - own)) * (1 + demand.sensitivity * outside)
            slower *= (top / clock) ** demand.clock_exponent
            alone = value_at(profile.units_per_second, job.sm_percent)
            kept.append(replace(job, units_per_second=alone / slower))
    return stand, kept


def _tuned(problem: Problem, one: Instance, exec_ms: float) -> Instance:
    """With this exec, the timeout it needs, and what follows."""
    service = problem.services[one.service]
    judged = exec_ms * (1 + problem.policy.exec_margin)
    wait = timeout_for(one.batch, judged, service.slo_ms, service.percentile, one.rate_per_second)
    if wait is None:
        return replace(one, exec_ms=exec_ms)  # the judge will say so
    reached = latency_at(one.batch, judged, one.rate_per_second, service.percentile, wait)
    return replace(one, exec_ms=exec_ms, batch_timeout_ms=wait, latency_ms=reached)
