"""Prices SLOs: the plan's cost without the service, and with its SLO shorter or longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from app.control.answer.explain.shares import costs_of_services
from app.control.answer.whatif.compare import FindPlan
from app.control.answer.whatif.wire import LatencyPriceWire, PercentilePriceWire, SloAmountWire, SloPriceWire
from solvers.planning.judge import judge
from solvers.planning.plan import Cost, Plan
from solvers.planning.problem import Problem, Service
from solvers.planning.search.promise import keep

SHORTER, LONGER = 0.9, 1.1  # of an SLO
FURTHER = (0.8, 1.25, 0.7, 1.5, 0.6, 2.0, 0.5)  # the nearest first, as time may end
PERCENTILES = (90.0, 95.0, 99.0, 99.9)
TELLING_LATE = 10.0  # requests that a percentile allows to be late: fewer do not tell whether it is kept


def price_slos(
    problem: Problem,
    plan: Plan,
    solve: FindPlan,
    names: Sequence[str] = (),
    measured: Mapping[str, float] = MappingProxyType({}),
    paid: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[SloPriceWire]:
    """Prices these services, or all, the most expensive first; `plan` is a plan of the problem, without State.

    Of those that are named it prices more latencies and percentiles, too; `measured` is how many requests of them were
    timed, `paid` what services cost in the plan in force.
    """
    costs = costs_of_services(problem, plan)
    chosen = list(names) or sorted(problem.services, key=lambda name: (-costs[name], name))
    now = _cost(problem, plan)
    for name in chosen:
        service = problem.services[name]
        without = _cheapest(_leave_out(problem, name), solve, _drop_lines(plan, name))
        shares = (SHORTER, LONGER, *(FURTHER if names else ()))
        by_share = _cost_latencies(problem, service, solve, now, plan, shares)
        prices_percentiles = bool(names) and without is not None and service.tokens is None
        amounts = _cost_percentiles(problem, service, solve, by_share[1.0]) if prices_percentiles else {}
        here = amounts.get(service.percentile, by_share[1.0])  # less than that where a stricter percentile's plan is
        by_share = _descend({**by_share, 1.0: here})
        without = _no_dearer(without, by_share[max(by_share)])
        price: SloPriceWire = {
            "service": name,
            "sloMs": service.slo_ms,
            "percentile": service.percentile,
            "paidPerHour": paid.get(name, 0.0),
            "costsPerHour": _difference(here, without),
            "shorterAddsPerHour": _difference(by_share.get(SHORTER), here),
            "longerSavesPerHour": _difference(here, by_share.get(LONGER)),
        }
        if names and without is not None:
            price["latencies"] = list(_price_latencies(service.slo_ms, by_share, without))
        if prices_percentiles:
            price["percentiles"] = list(_price_percentiles(amounts, without, measured.get(name, 0.0)))
        yield price


def _cost_latencies(
    problem: Problem, service: Service, solve: FindPlan, now: SloAmountWire, plan: Plan, shares: Sequence[float]
) -> dict[float, SloAmountWire]:
    """Returns the fleet's cost by share of the SLO's latency, the shortest first, while time is left."""
    found = {1.0: now}
    for share in shares:
        amount = _cheapest(_set_slo(problem, service, share), solve, plan if share > 1 else None)
        if amount is None:
            break
        found[share] = amount
    return _descend(found)


def _descend(amounts: Mapping[float, SloAmountWire]) -> dict[float, SloAmountWire]:
    """Returns the costs by latency, the shortest first, none above that of a shorter one, whose plan keeps it, too."""
    found: dict[float, SloAmountWire] = {}
    shorter: SloAmountWire | None = None
    for share, amount in sorted(amounts.items()):
        shorter = found[share] = _no_dearer(shorter, amount) or amount
    return found


def _price_latencies(
    slo_ms: float, amounts: Mapping[float, SloAmountWire], without: SloAmountWire
) -> Iterator[LatencyPriceWire]:
    """Yields what the SLO costs at each latency, the shortest first."""
    for share, amount in amounts.items():
        yield {"sloMs": slo_ms * share, "costsPerHour": _subtract(amount, without)}


def _cost_percentiles(
    problem: Problem, service: Service, solve: FindPlan, now: SloAmountWire
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
    return None if more is None or less is None else _subtract(more, less)


def _subtract(more: SloAmountWire, less: SloAmountWire) -> SloAmountWire:
    return {"gpus": more["gpus"] - less["gpus"], "unserved": more["unserved"] - less["unserved"]}


def _sum(cost: SloAmountWire) -> float:
    return cost["gpus"] + cost["unserved"]


def _no_dearer(less: SloAmountWire | None, more: SloAmountWire) -> SloAmountWire | None:
    """Returns the first cost, but never more than the second: a search may fail to find what is known."""
    if less is None:
        return None
    return less if _sum(less) < _sum(more) else more


def _cheapest(problem: Problem, solve: FindPlan, known: Plan | None) -> SloAmountWire | None:
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
