"""Prices SLOs: the plan's cost without the service, and with its SLO a tenth shorter or longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from app.control.answer.explain.shares import costs_of_services
from app.control.answer.whatif.wire import PercentilePriceWire, SloAmountWire, SloPriceWire
from solvers.planning.judge import judge
from solvers.planning.plan import Cost, Plan
from solvers.planning.problem import Problem, Service
from solvers.planning.search.promise import keep

SLO_STEP_SHARE = 0.1  # by which an SLO is shortened and lengthened
PERCENTILES = (90.0, 95.0, 99.0, 99.9)
TELLING_LATE = 10.0  # requests that a percentile allows to be late: fewer do not tell whether it is kept

Solve = Callable[[Problem], Plan | None]


def price_slos(
    problem: Problem,
    plan: Plan,
    solve: Solve,
    names: Sequence[str] = (),
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[SloPriceWire]:
    """Prices these services, or all, the most expensive first; `plan` is a plan of the problem, without State.

    Of those that are named it prices percentiles, too; `measured` is how many requests of them were timed.
    """
    costs = costs_of_services(problem, plan)
    chosen = list(names) or sorted(problem.services, key=lambda name: (-costs[name], name))
    now = _cost(problem, plan)
    for name in chosen:
        service = problem.services[name]
        without = _cheapest(_leave_out(problem, name), solve, _drop_lines(plan, name))
        looser = _cheapest(_set_slo(problem, service, 1 + SLO_STEP_SHARE), solve, plan)
        tighter = _cheapest(_set_slo(problem, service, 1 - SLO_STEP_SHARE), solve, None)
        prices_percentiles = bool(names) and without is not None and service.tokens is None
        amounts = _cost_percentiles(problem, service, solve, now) if prices_percentiles else {}
        here = amounts.get(service.percentile, now)  # less than now where the plan of a stricter percentile is cheaper
        dearer = None if tighter is None else tighter if _no_dearer(here, tighter) is here else here
        price: SloPriceWire = {
            "service": name,
            "sloMs": service.slo_ms,
            "percentile": service.percentile,
            "costsPerHour": _difference(here, _no_dearer(without, here)),
            "shorterAddsPerHour": _difference(dearer, here),
            "longerSavesPerHour": _difference(here, _no_dearer(looser, here)),
        }
        if prices_percentiles:
            price["percentiles"] = list(_price_percentiles(amounts, without, measured.get(name, 0.0)))
        yield price


def _cost_percentiles(
    problem: Problem, service: Service, solve: Solve, now: SloAmountWire
) -> dict[float, SloAmountWire]:
    """Returns the fleet's cost by percentile, the service's own included, the highest first, while time is left."""
    found: dict[float, SloAmountWire] = {}
    stricter: SloAmountWire | None = None
    for percentile in sorted({*PERCENTILES, service.percentile}, reverse=True):
        amount: SloAmountWire | None = now
        if percentile != service.percentile:
            amount = _cheapest(_put(problem, replace(service, percentile=percentile)), solve, None)
        if amount is None:
            break
        stricter = found[percentile] = _no_dearer(stricter, amount) or amount  # its plan keeps this percentile, too
    return found


def _price_percentiles(
    amounts: Mapping[float, SloAmountWire], without: SloAmountWire | None, measured: float
) -> Iterator[PercentilePriceWire]:
    """Yields what the SLO costs at each percentile, the lowest first."""
    for percentile, amount in sorted(amounts.items()):
        costs = _difference(amount, _no_dearer(without, amount))
        assert costs
        is_measured = measured * (100.0 - percentile) / 100.0 >= TELLING_LATE * (1 - 1e-9)
        yield {"percentile": percentile, "costsPerHour": costs, "isMeasured": is_measured}


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
    return _put(problem, looser)


def _put(problem: Problem, service: Service) -> Problem:
    return replace(problem, services={**problem.services, service.name: service})
