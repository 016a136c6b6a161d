"""Baselines: three other ways to serve what the plan serves, and what each would cost a tenant per hour.

`one_per_gpu`: every instance has a GPU to itself, of the type on which its service costs least.
`hetsev`: HetSev's greedy chooses the number and type of instances of each service; they share GPUs by first fit.
`largest`: every service runs on the type with most memory, in the smallest shape; instances share GPUs by first fit.

Where nodes are billed whole, a baseline pays all GPUs of the nodes that hold its own, divided evenly among these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal

from app.control.answer.savings.first_fit import TOLERANCE_SHARE, BaselineInstance, first_fit
from app.control.answer.savings.renting import least_rent
from app.control.answer.savings.shapes import InstanceShape, find_shapes, prices
from app.control.answer.savings.shares import GpuHolding, PaidGpu, by_service, by_tenant, list_gpus
from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import InstanceType, ScalingPromise
from solvers.hetsev.scaling.problem import ScalingProblem as Scaling
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, Service

Baseline = Literal["one_per_gpu", "hetsev", "largest"]
BASELINES: tuple[Baseline, ...] = ("one_per_gpu", "hetsev", "largest")


def rates_served(plan: Plan) -> dict[str, float]:
    """Returns the rate that the plan carries by service."""
    found: dict[str, float] = defaultdict(float)
    for instance in plan.instances:
        found[instance.service] += instance.rate_per_second
    return dict(found)


def costs(problem: Problem, plan: Plan) -> dict[Baseline, dict[str, float]]:
    """Returns the cost per hour by baseline and tenant; a service without a baseline counts as in the plan."""
    rates = rates_served(plan)
    paid = by_service(problem, list_gpus(problem, plan))
    found: dict[Baseline, dict[str, float]] = {}
    for baseline in BASELINES:
        gpus: dict[tuple[str, int], list[GpuHolding]] = defaultdict(list)
        for instance in place_baseline(problem, rates, baseline):
            shape = instance.shape
            holding = GpuHolding(instance.service, shape.sm_percent, shape.memory_gib)
            gpus[shape.gpu_type, instance.gpu].append(holding)
        is_alone = baseline == "one_per_gpu"
        needed = Counter(name for name, _ in gpus)
        price = {name: least_rent(problem, name, count) / count for name, count in needed.items()}
        pays = by_service(problem, (PaidGpu(name, price[name], tuple(on), is_alone) for (name, _), on in gpus.items()))
        found[baseline] = by_tenant(problem, {service: pays.get(service, paid[service]) for service in rates})
    return found


def plan_costs(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns what the services of each tenant pay for GPUs per hour; energy and jobs are left out on both sides."""
    return by_tenant(problem, by_service(problem, list_gpus(problem, plan)))


def place_baseline(problem: Problem, rates: Mapping[str, float], baseline: Baseline) -> list[BaselineInstance]:
    """Returns all instances of a baseline; services that it cannot serve have none."""
    price = prices(problem)
    largest = max(price, key=lambda name: (problem.gpu_types[name].memory_gib, price[name], name))
    wanted: list[tuple[Service, InstanceShape]] = []
    for name, rate in sorted(rates.items()):
        service = problem.services[name]
        known = find_shapes(problem, service)
        if baseline == "one_per_gpu":
            wanted += _alone(service, known, rate, price)
        elif baseline == "hetsev":
            wanted += _hetsev(problem, service, known, rate, price)
        else:
            wanted += _cheapest(service, [line for line in known if line.gpu_type == largest], rate)
    if baseline == "one_per_gpu":
        return [BaselineInstance(service.name, shape, number) for number, (service, shape) in enumerate(wanted)]
    return first_fit(problem, wanted)


def _needed(service: Service, rate: float, each: float) -> int:
    return max(ceil(rate / each * (1 - TOLERANCE_SHARE)), service.min_instances, 1)


def _alone(
    service: Service, known: Sequence[InstanceShape], rate: float, price: Mapping[str, float]
) -> list[tuple[Service, InstanceShape]]:
    best: dict[str, InstanceShape] = {}
    for shape in known:
        if shape.gpu_type not in best or shape.rate_per_second > best[shape.gpu_type].rate_per_second:
            best[shape.gpu_type] = shape
    choices = [
        (_needed(service, rate, shape.rate_per_second) * price[name], name, shape) for name, shape in best.items()
    ]
    if not choices:
        return []
    _, _, shape = min(choices, key=lambda choice: choice[:2])
    return [(service, shape)] * _needed(service, rate, shape.rate_per_second)


def _cheapest(service: Service, known: Sequence[InstanceShape], rate: float) -> list[tuple[Service, InstanceShape]]:
    """Chooses, on one GPU type, the shape whose instances together take the smallest share."""
    if not known:
        return []
    shape = min(
        known, key=lambda line: (_needed(service, rate, line.rate_per_second) * line.share, line.sm_percent)
    )  # fmt: skip
    return [(service, shape)] * _needed(service, rate, shape.rate_per_second)


def _hetsev(
    problem: Problem, service: Service, known: Sequence[InstanceShape], rate: float, price: Mapping[str, float]
) -> list[tuple[Service, InstanceShape]]:
    """Runs HetSev's heuristic over one shape per type: the cheapest by rate. It bills the memory that is held."""
    best: dict[str, InstanceShape] = {}
    for shape in known:
        before = best.get(shape.gpu_type)
        if before is None or shape.share / shape.rate_per_second < before.share / before.rate_per_second:
            best[shape.gpu_type] = shape
    if not best:
        return []
    kinds = tuple(
        InstanceType(
            name=name,
            throughput_per_second=shape.rate_per_second,
            exec_ms=shape.exec_ms,
            gpu_memory_gib=shape.share * problem.gpu_types[name].memory_gib,
            price_per_gib=price[name] / problem.gpu_types[name].memory_gib,
        )
        for name, shape in sorted(best.items())
    )
    counts = greedy.solve(Scaling(rate, ScalingPromise(service.slo_ms, service.percentile), kinds))
    found = [(service, best[name]) for name, count in sorted(counts.items()) for _ in range(count)]
    return found + found[-1:] * (service.min_instances - len(found))
