"""Serves one service again while all others keep places, shapes and rates, and has the result judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solvers.latency.kernels import accepted_load
from solvers.planning.availability import ANYWHERE
from solvers.planning.explain.ground import Ground, Notes, ServiceTerms
from solvers.planning.explain.seats import ENOUGH_SHARE, NOTHING, FoundSeats, instances, seats
from solvers.planning.fleet.grids import read_loads
from solvers.planning.fleet.predictions import predict_again
from solvers.planning.fleet.room_view import mean_w
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Node, Place, PlacedJob, Problem, RunningState
from solvers.planning.search.promise import keep

MOST_REPLACED_GPUS = 64
STEPS_TO_JUDGE = 1000  # for each instance
MOST_JUDGED_INSTANCES = 200


@dataclass(frozen=True, slots=True)
class RelaxedCase:
    """A service of a plan under some terms, and the ground on which it may be served.

    In `if_replaced` its instances have left, in `if_joined` they stay and others join them.
    """

    problem: Problem
    plan: Plan
    name: str
    terms: ServiceTerms
    own: tuple[Instance, ...]
    if_replaced: Ground | None  # None if it runs on too many GPUs to examine them again
    if_joined: Ground | None  # None where nothing of it runs
    notes: Notes
    more: tuple[Node, ...] = ()

    @property
    def grounds(self) -> tuple[Ground, ...]:
        return tuple(ground for ground in (self.if_replaced, self.if_joined) if ground)

    @property
    def rooms(self) -> FleetRooms:
        """Returns the account of the fleet with the plan as it is."""
        known = self.if_joined or self.if_replaced
        assert known
        return known.rooms

    def under(self, **terms: Any) -> RelaxedCase:
        """Returns the same case with another service, policy or limit."""
        return replace(self, terms=self.terms._replace(**terms))

    def wishing(self, **wishes: Any) -> RelaxedCase:
        """Returns the same case with other fields of the service."""
        before, after = self.terms.service, replace(self.terms.service, **wishes)
        if before.variation:  # the manifest states a dispersion: it stays, over the SLO's windows at the new rate
            requests = after.rate_per_second * after.slo_ms
            after = replace(after, variation=before.variation * before.rate_per_second * before.slo_ms / requests)
        return self.under(service=after)

    def on(self, change: Callable[[Ground], Ground]) -> RelaxedCase:
        """Returns the same case on other ground."""
        return replace(
            self,
            if_replaced=change(self.if_replaced) if self.if_replaced else None,
            if_joined=change(self.if_joined) if self.if_joined else None,
        )

    @property
    def changed(self) -> Problem:
        """Returns the problem with these terms."""
        service, policy, limit = self.terms
        limits = {name: other for name, other in self.problem.limits.items() if name != service.tenant}
        if limit:
            limits[service.tenant] = limit
        return replace(
            self.problem,
            nodes={**self.problem.nodes, **{node.name: node for node in self.more}},
            services={**self.problem.services, service.name: service},
            policy=policy,
            limits=limits,
        )


def case(
    problem: Problem, plan: Plan, name: str, known: Ground | None = None, notes: Notes | None = None
) -> RelaxedCase:  # fmt: skip
    """Returns the case of a service in a plan; `known` is what the plan leaves, if that was computed before."""
    service = problem.services[name]
    whole = known or Ground.of(FleetRooms(problem, plan.instances, plan.jobs))
    own = tuple(instance for instance in plan.instances if instance.service == name)
    places = {instance.place for instance in own}
    others = whole.without(places) if own else whole
    if_replaced: Ground | None = others
    if own:
        if_replaced = others.after(name) if len(places) <= MOST_REPLACED_GPUS else None
    return RelaxedCase(
        problem=problem,
        plan=plan,
        name=name,
        terms=ServiceTerms(service, problem.policy, problem.limits.get(service.tenant)),
        own=own,
        if_replaced=if_replaced,
        if_joined=others if own else None,
        notes=notes or Notes(),
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """New seats for a service, and the instances that it keeps."""

    found: FoundSeats
    staying: tuple[Instance, ...]

    @property
    def rate_per_second(self) -> float:
        return self.found.rate_per_second


def find_offer(case: RelaxedCase, whole: bool = False) -> Offer:
    """Returns the offer with the highest rate; if `whole`, the whole rate or nothing."""
    rate = case.terms.service.rate_per_second
    best = Offer(NOTHING, ())
    if case.if_replaced:
        best = Offer(seats(case.if_replaced, case.terms, case.notes, whole=whole), ())
    if case.if_joined and best.rate_per_second < rate * ENOUGH_SHARE:
        caps = [_cap(case.terms, instance) for instance in case.own]
        other = Offer(seats(case.if_joined, case.terms, case.notes, caps, whole), case.own)
        if other.rate_per_second > best.rate_per_second * (1 + 1e-9):
            return other
    return best


def find_whole_offer(case: RelaxedCase) -> Offer | None:
    """Returns an offer of the service's whole rate, or None."""
    found = find_offer(case, whole=True)
    return found if found.rate_per_second >= case.terms.service.rate_per_second * ENOUGH_SHARE else None


def apply_offer(case: RelaxedCase, offered: Offer) -> Plan | None:
    """Returns the plan with the offer taken, if the judge accepts it."""
    problem = case.changed
    placed, jobs, at = place_offer(case, offered, problem)
    unserved = tuple(entry for entry in case.plan.unserved if entry.service != case.name)
    plan = Plan(tuple(placed), tuple(jobs), unserved, case.plan.unplaced)
    judged = (problem, plan)
    if len(placed) > MOST_JUDGED_INSTANCES:
        judged = part(problem, plan, {place[0] for place in at}, case.name, case.rooms)
    case.notes.meter.spend(STEPS_TO_JUDGE * (len(judged[1].instances) + len(case.own) + len(offered.found.picks)))
    return plan if judge(*judged, simulate=False, keeps=keep).is_right else None


def place_offer(
    case: RelaxedCase, offered: Offer, problem: Problem
) -> tuple[list[Instance], list[PlacedJob], set[Place]]:
    """Returns instances and jobs after the offer is taken, and the GPUs that this concerns."""
    rates = zip(offered.staying, offered.found.own, strict=True)
    stay = [replace(instance, rate_per_second=rate) for instance, rate in rates]
    new = instances(offered.found, case.terms)
    at = {instance.place for instance in (*case.own, *new)}
    others = [instance for instance in case.plan.instances if instance.service != case.name]
    return *predict_again(problem, (*others, *stay, *new), case.plan.jobs, at), at


def part(problem: Problem, plan: Plan, nodes: set[str], whole: str, rooms: FleetRooms) -> tuple[Problem, Plan]:
    """Cuts some nodes out of a plan: one service whole, the others at their rates there, with those nodes' watts.

    Judging a large plan whole for each change would take longer than a caller waits. The limits of tenants were
    checked exactly before.
    """
    here = tuple(instance for instance in plan.instances if instance.node in nodes)
    jobs = tuple(job for job in plan.jobs if job.node in nodes)
    rates: dict[str, float] = defaultdict(float)
    for instance in here:
        rates[instance.service] += instance.rate_per_second
    services = {
        name: replace(problem.services[name], rate_per_second=rate, min_instances=1, availability=ANYWHERE)
        for name, rate in rates.items()
        if name != whole
    }
    small = replace(
        problem,
        nodes={name: problem.nodes[name] for name in nodes},
        services={**services, whole: problem.services[whole]},
        jobs={job.job: problem.jobs[job.job] for job in jobs},
        policy=replace(problem.policy, power_budget_w=watts_of_part(problem, nodes, rooms)),
        limits={},
        state=RunningState(problem.state.now) if problem.state else None,
    )
    return small, Plan(here, jobs, tuple(entry for entry in plan.unserved if entry.service == whole))


def watts_of_part(problem: Problem, nodes: set[str], rooms: FleetRooms) -> float | None:
    """Returns the watts that the power budget leaves to these nodes next to the others."""
    budget = problem.policy.power_budget_w
    if budget is None:
        return None
    own = sum(problem.type_of(name).idle_w * problem.nodes[name].gpu_count for name in nodes)
    own += sum(mean_w(gpu) for place, gpu in rooms.gpus.items() if place[0] in nodes)
    return max(budget - (rooms.commons.drawn_w - own), 0.0)


def _cap(terms: ServiceTerms, instance: Instance) -> float:
    """Returns the most that an instance may carry as it runs."""
    service = terms.service
    margin, utilization = 1 + terms.policy.exec_margin, terms.policy.utilization
    judged = instance.exec_ms * margin
    rows = read_loads(service, terms.policy, np.array([instance.batch]))
    load = min(accepted_load(rows[0], service.slo_ms / judged), utilization * margin)
    return float(max(1000 * load * instance.batch / judged * (1 - 1e-9), 0.0))
