"""A plan with one service served anew beside all others, who keep places, shapes and rates; and the judge's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from solvers.latency import latency_at, timeout_for
from solvers.latency import limits as latency_limits
from solvers.latency.kernels import accepted_load
from solvers.planning.explain.free_capacity import FreeCapacity, aside, busy_w, ground, without
from solvers.planning.explain.gpu_groups import Place
from solvers.planning.explain.options import Notes, ServiceTerms
from solvers.planning.explain.remaining import ENOUGH
from solvers.planning.explain.seats import NOTHING, FoundSeats, instances, seats
from solvers.planning.judge import judge
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Node, PlacedJob, Problem, RunningState
from solvers.planning.search.promise import keep

MOST_AFRESH = 64  # GPUs
STEPS_TO_JUDGE = 1000  # each instance
MOST_JUDGED = 200  # instances


@dataclass(frozen=True, slots=True)
class RelaxedCase:
    """One service of a plan under some terms, and the two grounds on which it may be served.

    Afresh: without its instances, in their place or elsewhere. Beside: they stay, and others join them.
    """

    problem: Problem
    plan: Plan
    name: str
    terms: ServiceTerms
    own: tuple[Instance, ...]
    afresh: FreeCapacity | None  # None where it runs on too many GPUs to look at them again
    beside: FreeCapacity | None  # None where nothing of it runs
    notes: Notes
    more: tuple[Node, ...] = ()

    @property
    def grounds(self) -> tuple[FreeCapacity, ...]:
        return tuple(one for one in (self.afresh, self.beside) if one)

    @property
    def whole(self) -> FreeCapacity:
        """The ground of the plan as it is."""
        known = self.beside or self.afresh
        assert known
        return known

    def under(self, **terms: Any) -> RelaxedCase:
        """The same case with other wishes of the service, another policy or another limit."""
        return replace(self, terms=self.terms._replace(**terms))

    def wishing(self, **wishes: Any) -> RelaxedCase:
        """The same case, where the service asks for something else."""
        return self.under(service=replace(self.terms.service, **wishes))

    def on(self, change: Callable[[FreeCapacity], FreeCapacity]) -> RelaxedCase:
        """The same case on other ground."""
        return replace(
            self,
            afresh=change(self.afresh) if self.afresh else None,
            beside=change(self.beside) if self.beside else None,
        )

    @property
    def changed(self) -> Problem:
        """The problem that has these terms."""
        service, policy, limit = self.terms
        limits = {name: one for name, one in self.problem.limits.items() if name != service.tenant}
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
    problem: Problem, plan: Plan, name: str, known: FreeCapacity | None = None, notes: Notes | None = None
) -> RelaxedCase:  # fmt: skip
    """The case of a service in a plan, of which the whole ground may be known."""
    service = problem.services[name]
    whole = known or ground(problem, plan.instances, plan.jobs)
    own = tuple(whole.of.get(name, ()))
    places = {one.place for one in own}
    return RelaxedCase(
        problem=problem,
        plan=plan,
        name=name,
        terms=ServiceTerms(service, problem.policy, problem.limits.get(service.tenant)),
        own=own,
        afresh=without(whole, own) if own and len(places) <= MOST_AFRESH else None if own else whole,
        beside=aside(whole, places) if own else None,
        notes=notes or Notes(),
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """Seats that a service gets, those that it keeps, and what all carry."""

    found: FoundSeats
    kept: tuple[Instance, ...]

    @property
    def rate_per_second(self) -> float:
        return self.found.rate_per_second


def offer(case: RelaxedCase, whole: bool = False) -> Offer:
    """The most that the case's ground lets the service carry; all of its rate or nothing, where that is asked."""
    rate = case.terms.service.rate_per_second
    best = Offer(NOTHING, ())
    if case.afresh:
        best = Offer(seats(case.afresh, case.terms, case.notes, whole=whole), ())
    if case.beside and best.rate_per_second < rate * ENOUGH:
        caps = [_cap(case.terms, one) for one in case.own]
        other = Offer(seats(case.beside, case.terms, case.notes, caps, whole), case.own)
        if other.rate_per_second > best.rate_per_second * (1 + 1e-9):
            return other
    return best


def serves(case: RelaxedCase) -> Offer | None:
    """An offer of the service's whole rate, if there is one."""
    found = offer(case, whole=True)
    return found if found.rate_per_second >= case.terms.service.rate_per_second * ENOUGH else None


def applied(case: RelaxedCase, offered: Offer) -> Plan | None:
    """The plan with the offer taken, where the judge finds it right."""
    problem = case.changed
    kept = [replace(one, rate_per_second=rate) for one, rate in zip(offered.kept, offered.found.own, strict=True)]
    new = instances(offered.found, case.terms)
    at = {one.place for one in (*case.own, *new)}
    others = [one for one in case.plan.instances if one.service != case.name]
    stand, jobs = renewed(problem, (*others, *kept, *new), case.plan.jobs, at)
    unserved = tuple(left for left in case.plan.unserved if left.service != case.name)
    plan = Plan(tuple(stand), tuple(jobs), unserved, case.plan.unplaced)
    judged = (problem, plan)
    if len(stand) > MOST_JUDGED:
        judged = part(problem, plan, {place[0] for place in at}, case.name, case.whole)
    case.notes.meter.spend(STEPS_TO_JUDGE * (len(judged[1].instances) + len(case.own) + len(new)))
    return plan if judge(*judged, simulate=False, keeps=keep).is_right else None


def part(problem: Problem, plan: Plan, nodes: set[str], whole: str, known: FreeCapacity) -> tuple[Problem, Plan]:
    """Some nodes by themselves: one service whole, the others at the rates they have there, and what watts are theirs.

    The limits of tenants were reckoned before, to the letter.

    A whole judgement of a large plan, for each change that is looked at, takes longer than a plan is waited for.
    """
    stand = tuple(one for one in plan.instances if one.node in nodes)
    jobs = tuple(job for job in plan.jobs if job.node in nodes)
    rates: dict[str, float] = defaultdict(float)
    for one in stand:
        rates[one.service] += one.rate_per_second
    services = {
        name: replace(problem.services[name], rate_per_second=rate, min_instances=1)
        for name, rate in rates.items()
        if name != whole
    }
    small = replace(
        problem,
        nodes={name: problem.nodes[name] for name in nodes},
        services={**services, whole: problem.services[whole]},
        jobs={job.job: problem.jobs[job.job] for job in jobs},
        policy=replace(problem.policy, power_budget_w=watts_of_part(problem, nodes, known)),
        limits={},
        state=RunningState(problem.state.now) if problem.state else None,
    )
    return small, Plan(stand, jobs, tuple(left for left in plan.unserved if left.service == whole))


def watts_of_part(problem: Problem, nodes: set[str], known: FreeCapacity) -> float | None:
    """What the power budget leaves these nodes, by what the others draw."""
    budget = problem.policy.power_budget_w
    if budget is None:
        return None
    mine = sum(problem.type_of(name).idle_w * problem.nodes[name].gpu_count for name in nodes)
    mine += sum(busy_w(gpu) for place, gpu in known.at.items() if place[0] in nodes)
    return max(budget - (known.drawn_w - mine), 0.0)


def _cap(terms: ServiceTerms, one: Instance) -> float:
    """The most it may carry as it stands."""
    service = terms.service
    margin, utilization = 1 + terms.policy.exec_margin, terms.policy.utilization
    judged = one.exec_ms * margin
    row = latency_limits(service.percentile, [one.batch]).loads[one.batch]
    load = min(accepted_load(row, service.slo_ms / judged), utilization * margin)
    return float(max(1000 * load * one.batch / judged * (1 - 1e-9), 0.0))


def renewed(
    problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob], places: set[Place]
) -> tuple[list[Instance], list[PlacedJob]]:
    """Returns all instances and jobs, those on these GPUs with new predictions and timeouts and at the end."""
    gpus = gpus_with(
        problem,
        [instance for instance in instances if instance.place in places],
        [job for job in jobs if job.place in places],
    )
    found = [instance for instance in instances if instance.place not in places]
    training = [job for job in jobs if job.place not in places]
    for place in sorted(gpus):
        found += [_tuned(problem, line.instance, line.exec_ms or 0.0) for line in gpus[place].residents]
        training += [replace(job.placed, units_per_second=job.units_per_second or 0.0) for job in gpus[place].jobs]
    return found, training


def _tuned(problem: Problem, one: Instance, exec_ms: float) -> Instance:
    """With this exec, the timeout it needs, and what follows."""
    service = problem.services[one.service]
    judged = exec_ms * (1 + problem.policy.exec_margin)
    wait = timeout_for(one.batch, judged, service.slo_ms, service.percentile, one.rate_per_second)
    if wait is None:
        return replace(one, exec_ms=exec_ms)  # the judge will say so
    reached = latency_at(one.batch, judged, one.rate_per_second, service.percentile, wait)
    return replace(one, exec_ms=exec_ms, batch_timeout_ms=wait, latency_ms=reached)
