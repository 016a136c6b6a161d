"""Prices what people do today on the same load: a static plan for the peak, or an autoscaler for each service.

Both are fluid models, without queues: load beyond what ready copies carry within the SLO counts as not served.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, fsum
from typing import TypeAlias

from app.control.answer.savings.market import list_pools
from simulation.measure.fresh import bare_problem, search_fresh
from solvers.planning.fleet.offers import read_offers
from solvers.planning.problem import Problem, Service

RateAt: TypeAlias = Callable[[str, float], float]  # a service and a second -> requests a second
SYNC_SECONDS = 15.0  # as kube-controller-manager has it
TARGET_SHARE = 0.8  # of what a copy carries within the SLO
TOLERANCE_SHARE = 0.1
STABLE_SECONDS = 300.0  # a smaller number counts once it was enough for so long
MOST_ADDED_PODS, MOST_ADDED_FACTOR = 4, 2  # in one sync: the larger of the two


@dataclass(frozen=True, slots=True)
class PeerCost:
    """The cost of a peer an hour, the share of requests that it serves, and the GPUs that it needs at most."""

    per_hour: float
    served_share: float
    most_gpus: int

    def figures(self) -> dict[str, float]:
        return {
            "perHour": round(self.per_hour, 6),
            "servedShare": round(self.served_share, 6),
            "mostGpus": self.most_gpus,
        }


def plan_static_peak(problem: Problem, rate_at: RateAt, seconds: Sequence[float], work: int, seed: int) -> PeerCost:
    """Plans once for the largest rate of each service: our own planner, without ever changing anything."""
    rates = {name: [rate_at(name, at) for at in seconds] for name in problem.services}
    peak = {name: max(0.01, *values) for name, values in rates.items()}
    plan = search_fresh(bare_problem(problem, peak), work, seed)
    assert plan.certificate
    unserved = {rest.service: rest.rate_per_second for rest in plan.unserved}
    served = [min(rate, peak[name] - unserved.get(name, 0.0)) for name, values in rates.items() for rate in values]
    asked = fsum(rate for values in rates.values() for rate in values)
    gpus = {place for instance in plan.instances for place in instance.places}
    return PeerCost(plan.certificate.cost.resource, fsum(served) / asked if asked else 1.0, len(gpus))


def scale_by_hpa(
    problem: Problem, rate_at: RateAt, start_seconds: Mapping[str, float], began: float, until: float
) -> PeerCost:
    """Scales each service by itself: copies with a whole GPU each, of the type on which the service costs least."""
    price = {pool.gpu_type: pool.price_per_hour for pool in list_pools(problem)}
    cost = served = asked = 0.0
    gpus: dict[float, int] = defaultdict(int)
    for name, service in sorted(problem.services.items()):
        shape = choose_shape(problem, service)
        per_copy = shape.rate_per_second if shape else 0.0
        of_service = partial(rate_at, name)
        for moment in autoscale(of_service, per_copy, service.min_instances, start_seconds.get(name, 0.0), until):
            if moment.at >= began:
                rate = of_service(moment.at)
                asked += rate
                served += min(rate, moment.ready * per_copy)
                held = moment.copies * (shape.gpus if shape else 0)
                cost += held * (price[shape.gpu_type] if shape else 0.0)
                gpus[moment.at] += held
    return PeerCost(cost / max(1, len(gpus)), served / asked if asked else 1.0, max(gpus.values(), default=0))


@dataclass(frozen=True, slots=True)
class PodShape:
    """A copy with whole GPUs of a type, of which a language model may have several, and the rate that it carries."""

    gpu_type: str
    gpus: int
    rate_per_second: float


def choose_shape(problem: Problem, service: Service) -> PodShape | None:
    """Returns the copy with which whole GPUs serve the declared rate at the lowest price, if any does."""
    price = {pool.gpu_type: pool.price_per_hour for pool in list_pools(problem)}

    def cost(shape: PodShape) -> tuple[float, float, str]:
        wanted = max(service.min_instances, ceil(service.rate_per_second / (TARGET_SHARE * shape.rate_per_second)))
        return wanted * shape.gpus * price[shape.gpu_type], -shape.rate_per_second, shape.gpu_type

    return min(_pod_shapes(problem, service), key=cost, default=None)


def _pod_shapes(problem: Problem, service: Service) -> Iterator[PodShape]:
    if service.tokens is None:
        for shape in read_offers(problem).find_lone_shapes(service, list_pools(problem)):
            yield PodShape(shape.pool.gpu_type, 1, shape.rate_per_second)
        return
    there = {node.gpu_type for node in problem.nodes.values()}
    for wide in read_offers(problem).find_token_shapes(service):
        if wide.gpu_type in there:
            yield PodShape(wide.gpu_type, wide.degree, wide.rate_per_second)


@dataclass(frozen=True, slots=True)
class HpaMoment:
    """The copies that are paid at a moment, and those of them that serve."""

    at: float
    copies: int
    ready: int


def autoscale(
    rate_at: Callable[[float], float], per_copy: float, least: int, start_seconds: float, until: float
) -> list[HpaMoment]:
    """Returns the copies of one service at every sync; `per_copy` is the rate that a copy carries, 0 if none can."""
    least = max(1, least)
    copies = max(least, ceil(rate_at(0.0) / (TARGET_SHARE * per_copy))) if per_copy else 0
    ready_from = [0.0] * copies  # by copy
    wishes: list[tuple[float, int]] = []
    found = []
    for number in range(int(until // SYNC_SECONDS)):
        at = number * SYNC_SECONDS
        usage = rate_at(at) / (copies * per_copy) / TARGET_SHARE if copies else 1.0
        wish = copies if abs(usage - 1) <= TOLERANCE_SHARE else max(least, ceil(copies * usage - 1e-9))
        wishes = [(since, wanted) for since, wanted in wishes if since > at - STABLE_SECONDS] + [(at, wish)]
        wanted = wish if wish >= copies else min(copies, max(most for _, most in wishes))
        wanted = min(wanted, max(MOST_ADDED_FACTOR * copies, copies + MOST_ADDED_PODS))
        if wanted < copies:
            ready_from = sorted(ready_from)[:wanted]
        ready_from += [at + start_seconds] * (wanted - copies)
        copies = len(ready_from)
        found.append(HpaMoment(at, copies, sum(since <= at for since in ready_from)))
    return found
