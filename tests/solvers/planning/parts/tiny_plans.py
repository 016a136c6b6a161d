"""The least cost of a tiny problem with rules of availability, by trying all plans of a coarse grid of SM%."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from solvers import latency
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Node, Place, Problem, Profile, Service
from tests.solvers.planning.bound import tiny_plans

GRIDS = ((10, 20, 40, 60, 80, 100), (20, 40, 60, 100), (20, 50, 100), (50, 100))
MOST_PLANS = 12_000
SURVIVING = 0.95


@dataclass(frozen=True)
class Copy:
    """An instance by its best batch among its neighbours."""

    service: str
    place: Place
    variant: str
    batch: int
    sm: int
    memory_gib: float
    exec_ms: float
    most: float  # requests a second

    @property
    def left(self) -> float:
        """Requests a second when another node is lost."""
        return SURVIVING * self.batch * 1000 / self.exec_ms


Filling = tuple[Copy, ...]


def cheapest(problem: Problem) -> tuple[float, Plan]:
    """Returns the cheapest plan of services tried, and its cost: whole GPUs, or whole nodes where these are billed."""
    places = [(name, gpu) for name, node in sorted(problem.nodes.items()) for gpu in node.gpus]
    for grid in GRIDS:
        options = [list(_fillings(problem, problem.nodes[name], (name, gpu), grid)) for name, gpu in places]
        if prod(map(len, options)) <= MOST_PLANS:
            break
    best, found = inf, Plan(())
    for least, fillings in _cheapest_first(problem, options):
        if least >= best:
            break
        cost = _paid(problem, fillings)
        lines, unserved = [], []
        for name, service in sorted(problem.services.items()):
            copies = [copy for filling in fillings for copy in filling if copy.service == name]
            rates = _rates(problem, service, copies)
            if rates is None:
                break
            lines += [(copy, rate) for copy, rate in zip(copies, rates, strict=True)]
            rest = service.rate_per_second - sum(rates)
            if rest > 1e-9 * service.rate_per_second:
                unserved.append(Unserved(name, rest))
                cost += problem.policy.unserved_price * service.priority / 100 * max(rest, 1.0)
        else:
            if cost < best:
                best, found = cost, Plan(tuple(_line(problem, *line) for line in lines), unserved=tuple(unserved))
    return best, found


def _cheapest_first(problem: Problem, options: list[list[Filling]]) -> Iterator[tuple[float, tuple[Filling, ...]]]:
    """Yields all plans with what each costs at least: without any rules, its copies carry all that they can."""
    services = [service for _, service in sorted(problem.services.items())]
    rates = np.array([service.rate_per_second for service in services])
    prices = problem.policy.unserved_price * np.array([service.priority / 100 for service in services])
    numbers = list(product(*map(range, map(len, options))))
    each = np.array(numbers)
    rest = rates - sum(_carried(services, options[gpu])[each[:, gpu]] for gpu in range(len(options)))
    unserved = np.where(rest > 1e-9 * rates, np.maximum(rest, 1.0), 0.0) @ prices
    plans = [tuple(options[gpu][number] for gpu, number in enumerate(row)) for row in numbers]
    least = np.array([_paid(problem, plan) for plan in plans]) + unserved * (1 - 1e-12)
    for plan in np.argsort(least, kind="stable").tolist():
        yield float(least[plan]), plans[plan]


def _carried(services: list[Service], fillings: list[Filling]) -> NDArray[np.float64]:
    """Returns the most that each filling of a GPU carries of each service."""
    return np.array(
        [
            [sum(copy.most for copy in filling if copy.service == service.name) for service in services]
            for filling in fillings
        ],
        dtype=np.float64,
    )


def _fillings(problem: Problem, node: Node, place: Place, grid: tuple[int, ...]) -> Iterator[Filling]:
    yield ()
    services = [problem.services[name] for name in sorted(problem.services)]
    choices: list[list[tuple[Service, Profile, int] | None]] = [
        [None, *((s, profile, sm) for s, profile, sm in tiny_plans._choices(problem, service, node) if sm in grid)]
        for service in services
    ]
    for residents in product(*choices):
        there = [resident for resident in residents if resident]
        models = [service.model for service, _, _ in there]
        is_alone = any(service.is_dedicated for service, _, _ in there)
        if not there or sum(sm for _, _, sm in there) > 100 or len(set(models)) < len(models):
            continue
        if is_alone and len(there) > 1:
            continue
        copies = _copies(problem, place, there)
        if copies and sum(copy.memory_gib for copy in copies) <= problem.gpu_types[node.gpu_type].memory_gib:
            yield copies


def _copies(problem: Problem, place: Place, there: list[tuple[Service, Profile, int]]) -> Filling | None:
    own = [tiny_plans._at(profile.demand.whole_pressure, sm) for _, profile, sm in there]
    found = []
    for (service, profile, sm), pressure in zip(there, own, strict=True):
        slow = 1 + profile.demand.most_sensitivity * (sum(own) - pressure)
        best: Copy | None = None
        for batch, curve in profile.latency_ms.items():
            if curve[0][0] <= sm <= curve[-1][0]:
                exec_ms = tiny_plans._at(curve, sm) * slow
                rate = tiny_plans._rate(problem, service, batch, exec_ms, 0.0) * (1 - 1e-9)
                if rate > (best.most if best else 0.0):
                    memory = profile.memory_gib[batch]
                    best = Copy(service.name, place, profile.variant, batch, sm, memory, exec_ms, rate)
        if best is None:
            return None
        found.append(best)
    return tuple(found)


def _paid(problem: Problem, fillings: tuple[Filling, ...]) -> float:
    used = [filling[0].place[0] for filling in fillings if filling]
    whole = {name for name in used if problem.nodes[name].pricing == "node"}
    by_gpu = sum(problem.nodes[name].price_per_hour for name in used if name not in whole)
    return by_gpu + sum(problem.nodes[name].price_per_hour * problem.nodes[name].gpu_count for name in whole)


def _rates(problem: Problem, service: Service, copies: list[Copy]) -> list[float] | None:
    """Returns rates that keep the service's rules; None if these copies cannot keep them in proportion."""
    if not copies:
        return []
    rules, least = service.availability, service.min_instances
    spot = [problem.nodes[copy.place[0]].purchase == "spot" for copy in copies]
    firm = sum(copy.most for copy, is_spot in zip(copies, spot, strict=True) if not is_spot)
    rest = sum(copy.most for copy in copies) - firm
    share = rules.max_spot_share
    if share < 1:
        rest = min(rest, firm * share / (1 - share))
    served = min(service.rate_per_second, firm + rest)
    if rules.survive_nodes:
        served = min(served, *(_left(copies, lost) for lost in {copy.place[0] for copy in copies}))
    if served <= 0:
        return None
    on_spot = min(rest, share * served)
    total = sum(copy.most for copy, is_spot in zip(copies, spot, strict=True) if is_spot)
    if served - on_spot > firm * (1 + 1e-9):
        on_spot = served - firm
    rates = [
        copy.most * (on_spot / total if is_spot else (served - on_spot) / firm)
        for copy, is_spot in zip(copies, spot, strict=True)
    ]
    if min(rates) <= 0 or len(rates) < least:
        return None
    order = sorted(range(len(rates)), key=lambda i: -rates[i])[:least]
    apart = {_apart(problem, service, copies[i]) for i in order}
    if least > 1 and (len(apart) < least or rates[order[-1]] < served / len(rates) / 2):
        return None
    return rates


def _left(copies: list[Copy], lost: str) -> float:
    return sum(copy.left for copy in copies if copy.place[0] != lost) * (1 - 1e-9)


def _apart(problem: Problem, service: Service, copy: Copy) -> object:
    node = copy.place[0]
    return {"gpu": copy.place, "node": node, "region": problem.nodes[node].region}[service.availability.spread]


def _line(problem: Problem, copy: Copy, rate: float) -> Instance:
    service, clock = problem.services[copy.service], problem.type_of(copy.place[0]).top_clock_mhz
    judged = copy.exec_ms * (1 + problem.policy.exec_margin)
    wait = latency.timeout_for(copy.batch, judged, service.slo_ms, service.percentile, rate)
    assert wait is not None
    return Instance(
        f"{copy.service}-{copy.place}", copy.service, *copy.place, copy.variant, copy.batch, wait, copy.sm,
        copy.memory_gib, clock, rate, copy.exec_ms,
    )  # fmt: skip
