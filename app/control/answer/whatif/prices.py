"""Prices SLOs: the plan's cost without the service, and with its SLO a tenth shorter or longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.control.answer.explain.shares import costs_of_services
from app.control.answer.whatif.wire import SloAmountWire, SloPriceWire
from solvers.planning.judge import judge
from solvers.planning.plan import Cost, Plan
from solvers.planning.problem import Problem, Service
from solvers.planning.search.promise import keep

SLO_STEP_SHARE = 0.1  # by which an SLO is shortened and lengthened

Solve = Callable[[Problem], Plan | None]


def price_slos(problem: Problem, plan: Plan, solve: Solve, names: Sequence[str] = ()) -> Iterator[SloPriceWire]:
    """Prices these services, or all, the most expensive first; `plan` is a plan of the problem, without State."""
    costs = costs_of_services(problem, plan)
    chosen = list(names) or sorted(problem.services, key=lambda name: (-costs[name], name))
    now = _cost(problem, plan)
    for name in chosen:
        service = problem.services[name]
        without = _cheapest(_leave_out(problem, name), solve, _drop_lines(plan, name))
        looser = _cheapest(_set_slo(problem, service, 1 + SLO_STEP_SHARE), solve, plan)
        tighter = _cheapest(_set_slo(problem, service, 1 - SLO_STEP_SHARE), solve, None)
        dearer = None if tighter is None else tighter if _no_dearer(now, tighter) is now else now
        yield {
            "service": name,
            "sloMs": service.slo_ms,
            "costsPerHour": _difference(now, _no_dearer(without, now)),
            "shorterAddsPerHour": _difference(dearer, now),
            "longerSavesPerHour": _difference(now, _no_dearer(looser, now)),
        }


def _difference(more: SloAmountWire | None, less: SloAmountWire | None) -> SloAmountWire | None:
    """Returns how much more the first is; None where no plan was found in time."""
    if more is None or less is None:
        return None
    return {"gpus": more["gpus"] - less["gpus"], "unserved": more["unserved"] - less["unserved"]}


def _sum(cost: SloAmountWire) -> float:
    return cost["gpus"] + cost["unserved"]


def _no_dearer(less: SloAmountWire | None, more: SloAmountWire) -> SloAmountWire | None:
    """Returns the first cost, but never more than the second: a search may fail to find what is known."""
    if less is None:
        return None
    return less if _sum(less) < _sum(more) else more


def _cheapest(problem: Problem, solve: Solve, known: Plan | None) -> SloAmountWire | None:
    """Returns the lower cost of the plan found and the known plan, where that is valid; None without time."""
    found = solve(problem)
    if found is None:
        return None
    costs = [_cost(problem, found)]
    if known is not None:
        verdict = judge(problem, known, simulate=False, keeps=keep)
        costs += [_amount(verdict.cost)] if verdict.is_right else []
    return min(costs, key=_sum)


def _cost(problem: Problem, plan: Plan) -> SloAmountWire:
    return _amount(judge(problem, plan, simulate=False).cost)


def _amount(cost: Cost) -> SloAmountWire:
    return {"gpus": cost.resource, "unserved": cost.unserved}


def _leave_out(problem: Problem, name: str) -> Problem:
    return replace(problem, services={key: service for key, service in problem.services.items() if key != name})


def _drop_lines(plan: Plan, name: str) -> Plan:
    return replace(
        plan,
        instances=tuple(instance for instance in plan.instances if instance.service != name),
        unserved=tuple(line for line in plan.unserved if line.service != name),
    )


def _set_slo(problem: Problem, service: Service, times: float) -> Problem:
    looser = replace(service, slo_ms=service.slo_ms * times)
    if service.tokens is not None:
        promise = service.tokens.promise
        both = replace(promise, ttft_ms=promise.ttft_ms * times, tpot_ms=promise.tpot_ms * times)
        looser = replace(looser, tokens=replace(service.tokens, promise=both))
    return replace(problem, services={**problem.services, service.name: looser})
