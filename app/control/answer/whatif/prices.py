"""Prices SLOs: the plan's cost without the service, and with its SLO a tenth shorter or longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.control.answer.explain.shares import costs_of_services
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, Service
from solvers.planning.search.promise import keep

SLO_STEP_SHARE = 0.1  # by which an SLO is shortened and lengthened

Solve = Callable[[Problem], Plan | None]


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """Cost per hour of GPUs, and of unserved requests as the policy prices them."""

    gpus: float
    unserved: float

    def over(self, other: HourlyCost | None) -> HourlyCost | None:
        """Returns how much more this is."""
        return None if other is None else HourlyCost(self.gpus - other.gpus, self.unserved - other.unserved)


@dataclass(frozen=True, slots=True)
class SloPrice:
    """Differences per hour; None where no plan was found in time."""

    service: str
    slo_ms: float
    costs: HourlyCost | None  # what the fleet would save without the service
    shorter_adds: HourlyCost | None  # at 0.9 of its latency
    longer_saves: HourlyCost | None  # at 1.1 of it


def price_slos(problem: Problem, plan: Plan, solve: Solve, names: Sequence[str] = ()) -> Iterator[SloPrice]:
    """Prices these services, or all, the most expensive first; `plan` is a plan of the problem, without State."""
    costs = costs_of_services(problem, plan)
    chosen = list(names) or sorted(problem.services, key=lambda name: (-costs[name], name))
    now = _cost(problem, plan)
    for name in chosen:
        service = problem.services[name]
        without = _cheapest(_without(problem, name), solve, _without_lines(plan, name))
        looser = _cheapest(_with_slo(problem, service, 1 + SLO_STEP_SHARE), solve, plan)
        tighter = _cheapest(_with_slo(problem, service, 1 - SLO_STEP_SHARE), solve, None)
        yield SloPrice(
            name,
            service.slo_ms,
            now.over(_no_dearer(without, now)),
            None if tighter is None else (tighter if _no_dearer(now, tighter) is now else now).over(now),
            now.over(_no_dearer(looser, now)),
        )


def _no_dearer(less: HourlyCost | None, more: HourlyCost) -> HourlyCost | None:
    """Returns the first cost, but never more than the second: a search may fail to find what is known."""
    if less is None:
        return None
    return less if less.gpus + less.unserved < more.gpus + more.unserved else more


def _cheapest(problem: Problem, solve: Solve, known: Plan | None) -> HourlyCost | None:
    """Returns the lower cost of the plan found and the known plan, where that is valid; None without time."""
    found = solve(problem)
    if found is None:
        return None
    costs = [_cost(problem, found)]
    if known is not None:
        verdict = judge(problem, known, simulate=False, keeps=keep)
        costs += [HourlyCost(verdict.cost.resource, verdict.cost.unserved)] if verdict.is_right else []
    return min(costs, key=lambda cost: cost.gpus + cost.unserved)


def _cost(problem: Problem, plan: Plan) -> HourlyCost:
    cost = judge(problem, plan, simulate=False).cost
    return HourlyCost(cost.resource, cost.unserved)


def _without(problem: Problem, name: str) -> Problem:
    return replace(problem, services={key: service for key, service in problem.services.items() if key != name})


def _without_lines(plan: Plan, name: str) -> Plan:
    return replace(
        plan,
        instances=tuple(instance for instance in plan.instances if instance.service != name),
        unserved=tuple(line for line in plan.unserved if line.service != name),
    )


def _with_slo(problem: Problem, service: Service, times: float) -> Problem:
    looser = replace(service, slo_ms=service.slo_ms * times)
    if service.tokens is not None:
        promise = service.tokens.promise
        both = replace(promise, ttft_ms=promise.ttft_ms * times, tpot_ms=promise.tpot_ms * times)
        looser = replace(looser, tokens=replace(service.tokens, promise=both))
    return replace(problem, services={**problem.services, service.name: looser})
