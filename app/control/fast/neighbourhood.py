"""The part of a fleet that one service runs on: small enough to judge a change at once, and judged like the whole.

It has the nodes of the service's GPUs with all that runs on them. Other services have the rate that they carry there;
a tenant's limit is what its instances elsewhere leave of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from solvers.planning.availability import ANYWHERE
from solvers.planning.judge import Verdict, judge
from solvers.planning.judge.readings import JudgedGpu, Reader, slow_down
from solvers.planning.plan import Plan, list_unserved
from solvers.planning.problem import Instance, Limit, Problem, RunningState
from solvers.planning.search.promise import keep


@dataclass(frozen=True)
class Neighbourhood:
    """A problem of its own, and the part of the plan that answers it."""

    problem: Problem
    plan: Plan

    @cached_property
    def verdict(self) -> Verdict:
        """The judge's verdict by every rule, with SLOs by the latency table."""
        return judge(self.problem, self.plan, simulate=False, keeps=keep)

    def gpus(self) -> dict[tuple[str, int], JudgedGpu]:
        """Returns each GPU with what runs on it, and execution times among neighbours."""
        reader, nodes = Reader(self.problem), self.problem.nodes
        found: dict[tuple[str, int], JudgedGpu] = {}

        def at(place: tuple[str, int]) -> JudgedGpu:
            node = nodes[place[0]]
            return found.setdefault(place, JudgedGpu(node, self.problem.type_at(place), place[1]))

        for line in self.plan.instances:
            gpu = at(line.place)
            gpu.residents.append(reader.resident(line, self.problem.services[line.service], gpu.node))
        for placed in self.plan.jobs:
            job = reader.job(placed, nodes[placed.node])
            for place in placed.places:
                at(place).jobs.append(job)
        for gpu in found.values():
            slow_down(gpu, self.problem.policy)
        return found

    def becoming(self, lines: Iterable[Instance], rates: dict[str, float]) -> Neighbourhood:
        """Returns the neighbourhood with these instances in place of those of their ids, and with these rates."""
        new = {line.id: line for line in lines}
        instances = tuple(new.get(line.id, line) for line in self.plan.instances)
        problem = self.problem.change_rates(rates)
        plan = replace(self.plan, instances=instances, unserved=list_unserved(problem, instances))
        return replace(self, problem=problem, plan=plan)


def neighbourhood_of(problem: Problem, plan: Plan, services: Collection[str]) -> Neighbourhood:
    """Returns the neighbourhood of these services; under a power budget that is the whole fleet."""
    nodes = {line.node for line in plan.instances if line.service in services}
    if problem.policy.power_budget_w is not None:
        nodes = set(problem.nodes)
    lines = tuple(line for line in plan.instances if line.node in nodes)
    jobs = tuple(placed for placed in plan.jobs if placed.node in nodes)
    here = {line.service for line in lines} | set(services)
    carried: dict[str, float] = defaultdict(float)
    for line in lines:
        carried[line.service] += line.rate_per_second
    names = {
        name: problem.services[name]
        if name in services
        else replace(problem.services[name], rate_per_second=carried[name], min_instances=1, availability=ANYWHERE)
        for name in sorted(here)
        if name in services or carried[name] > 0
    }
    placed_jobs = {placed.job for placed in jobs}
    state = problem.state
    part = replace(
        problem,
        nodes={name: problem.nodes[name] for name in sorted(nodes)},
        services=names,
        jobs={name: job for name, job in problem.jobs.items() if name in placed_jobs},
        limits=_limits_here(problem, plan, nodes),
        state=RunningState(now=state.now if state else None, running=lines, jobs=jobs),
    )
    return Neighbourhood(part, Plan(lines, jobs, list_unserved(part, lines)))


def cost_on(problem: Problem, plan: Plan, nodes: Collection[str]) -> float:
    """Returns what services pay an hour for these nodes."""
    there = replace(plan, instances=tuple(line for line in plan.instances if line.node in nodes), jobs=())
    if not there.instances:
        return 0.0
    part = neighbourhood_of(problem, there, {line.service for line in there.instances})
    return judge(part.problem, part.plan, simulate=False).cost.resource


def _limits_here(problem: Problem, plan: Plan, nodes: Collection[str]) -> dict[str, Limit]:
    """Returns each tenant's limit less what it takes on other nodes; a dedicated service's GPU counts whole, once."""
    taken: dict[str, list[float]] = {tenant: [0.0, 0.0] for tenant in problem.limits}
    whole: set[tuple[str, str, int]] = set()
    for line in plan.instances:
        service = problem.services[line.service]
        if line.node in nodes or service.tenant not in taken:
            continue
        share = line.sm_percent / 100
        if service.is_dedicated:
            key = (service.tenant, *line.place)
            share = 0.0 if key in whole else 1.0
            whole.add(key)
        taken[service.tenant][0] += share
        taken[service.tenant][1] += share * problem.nodes[line.node].price_per_hour
    return {
        tenant: Limit(
            None if limit.gpus is None else max(0.0, limit.gpus - taken[tenant][0]),
            None if limit.price_per_hour is None else max(0.0, limit.price_per_hour - taken[tenant][1]),
            limit.source,
        )
        for tenant, limit in problem.limits.items()
    }
