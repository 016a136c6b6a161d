"""Plans by HetSev's greedy at large sizes, as the plan to beat: shapes first, counts by H2, places by H3.

Each service has one shape for each GPU type: the batch and SM% of least price x max(SM, memory share) per accepted
rate, slowed as if its GPU's pressure were a fixed level; a GPU takes residents up to that level, so the verdict on
SLOs is ours and holds. H2 gives each service the type whose count costs least among those with room in total; H3
places what was counted, by worst fit or by best fit; the cheapest over fits and two levels is the plan.

The paper stops there, and at higher loads much stays unserved: a popular model in many small instances runs out of GPUs
without it, others find SMs only in fragments. So that there is a right plan to compare with, a shape that cannot be
counted or placed gives way to the next in the order of price per rate. minInstances, dedicated services, CPU and host
memory are not HetSev's: families A, B and G have none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels import fill_accepted_loads
from lab.published.queues import fair_order
from solvers import latency
from solvers.planning.plan import Plan, Unserved
from solvers.planning.pressures import add_parts
from solvers.planning.problem import Instance, Problem, Profile, Service

Floats = NDArray[np.float64]

PRESSURE_LEVELS = (0.7, 1.0)  # the better of both counts; lower and higher levels cost more
STEP_SM_PERCENT = 10  # between the shapes that a service may fall back to
FITS = ("worst", "best")


@dataclass(frozen=True, slots=True)
class HetsevShape:
    """The shape of a service's instances on a GPU type, and the most that each serves."""

    gpu_type: str
    variant: str
    batch: int
    sm_percent: int
    memory_gib: float
    pressure: float
    rate_per_second: float
    price_per_hour: float  # of the GPU's share


@dataclass(frozen=True, slots=True)
class CountedInstance:
    """An instance that H2 counted and H3 places."""

    service: Service
    shape: HetsevShape
    rate_per_second: float


@dataclass(slots=True)
class Gpus:
    """All GPUs of a type: the free capacity of each, and the models that run there."""

    places: list[tuple[str, int]]
    sm: NDArray[np.int64]
    memory_gib: Floats
    pressure: Floats
    clients: NDArray[np.int64]
    models: NDArray[np.int64]  # [GPU, model]: instances
    most_alike: int  # instances of a model on a GPU
    room: Floats = field(init=False)  # SM%, GiB and instances of each model in total, less what was promised

    def __post_init__(self) -> None:
        alike = np.full(self.models.shape[1], float(self.most_alike * len(self.places)))
        self.room = np.concatenate([[float(self.sm.sum()), float(self.memory_gib.sum())], alike])

    def room_for(self, shape: HetsevShape, model: int) -> int:
        """Returns how many more could be counted, by totals alone (HetSev, constraint (2))."""
        by_sm, by_memory = self.room[0] / shape.sm_percent, self.room[1] / shape.memory_gib
        return max(0, int(min(by_sm, by_memory, self.room[2 + model]) + 1e-9))

    def promise(self, shape: HetsevShape, model: int) -> None:
        self._count(shape, model, -1)

    def give_back(self, shape: HetsevShape, model: int) -> None:
        self._count(shape, model, 1)

    def _count(self, shape: HetsevShape, model: int, sign: int) -> None:
        self.room[0] += sign * shape.sm_percent
        self.room[1] += sign * shape.memory_gib
        self.room[2 + model] += sign

    def fit(self, shape: HetsevShape, model: int, fit: str) -> int | None:
        """Returns the GPU with most (worst fit) or least (best fit) free memory among those that have room."""
        able = (
            (self.sm >= shape.sm_percent)
            & (self.memory_gib >= shape.memory_gib - 1e-9)
            & (self.pressure >= shape.pressure - 1e-9)
            & (self.clients > 0)
            & (self.models[:, model] < self.most_alike)
        )
        if not able.any():
            return None
        if fit == "worst":
            return int(np.where(able, self.memory_gib, -1.0).argmax())
        return int(np.where(able, self.memory_gib, np.inf).argmin())

    def take(self, gpu: int, shape: HetsevShape, model: int) -> None:
        self.sm[gpu] -= shape.sm_percent
        self.memory_gib[gpu] -= shape.memory_gib
        self.pressure[gpu] -= shape.pressure
        self.clients[gpu] -= 1
        self.models[gpu, model] += 1


def solve(problem: Problem) -> Plan:
    """Returns the cheapest of the plans by level and fit, which pays whole GPUs and unserved load."""
    plans: list[Plan] = []
    for level in PRESSURE_LEVELS:
        shapes = {service.name: _shapes(problem, service, level) for service in problem.services.values()}
        plans += [_plan(problem, shapes, level, fit) for fit in FITS]
    return min(plans, key=lambda plan: _price(problem, plan))


def _price(problem: Problem, plan: Plan) -> float:
    used = {instance.place for instance in plan.instances}
    missed = sum(unserved.rate_per_second for unserved in plan.unserved) * problem.policy.unserved_price
    return sum(problem.nodes[node].price_per_hour for node, _ in used) + missed


def _shapes(problem: Problem, service: Service, level: float) -> list[HetsevShape]:
    """Returns its shapes on every type, by type and price per rate; the first of a type is HetSev's."""
    price = {node.gpu_type: node.price_per_hour for node in problem.nodes.values()}
    found: list[HetsevShape] = []
    for name in sorted(price):
        if service.gpu_types is not None and name not in service.gpu_types:
            continue
        for variant in service.variants:
            if profile := problem.profiles.get((service.model, variant, name)):
                found += _make_shapes(problem, service, profile, price[name], level)
    return sorted(found, key=lambda shape: (shape.gpu_type, shape.price_per_hour / shape.rate_per_second))


def _make_shapes(
    problem: Problem, service: Service, profile: Profile, price: float, level: float
) -> Iterator[HetsevShape]:
    """Yields the cheapest shape per rate, and the cheapest of every tenth SM%."""
    policy = problem.policy
    batches = sorted(profile.latency_ms)
    points = [sm for sm, _ in profile.latency_ms[batches[0]]]
    sm = np.arange(points[0], points[-1] + 1, dtype=np.float64)
    exec_ms = np.array([np.interp(sm, *_points(profile.latency_ms[batch]), right=np.inf) for batch in batches])
    pressure = np.interp(sm, *_points(profile.demand.whole_pressure))
    exec_ms *= 1 + profile.demand.most_sensitivity * np.maximum(0, level - pressure)
    exec_ms[:, pressure > level] = np.inf
    margin = 1 + policy.exec_margin
    loads = np.empty((1, *exec_ms.shape))
    rows = np.ascontiguousarray(latency.limits(service.percentile, batches, service.variation).loads[batches])
    fill_accepted_loads(rows, (service.slo_ms / (exec_ms * margin))[None], loads)
    batch = np.array(batches)[:, None]
    rate = np.minimum(loads[0] / margin, policy.utilization) * batch * 1000 / exec_ms
    memory = np.array([profile.memory_gib[of] for of in batches])[:, None]
    whole = problem.gpu_types[profile.gpu_type].memory_gib
    share = np.maximum(sm / 100, memory / whole)
    with np.errstate(divide="ignore"):
        each = np.where((rate > 1e-9) & (memory <= whole), share / rate, np.inf)
    best = each.argmin(axis=0)
    least = each.min(axis=0)
    for step in sorted({int(least.argmin()), *range(0, len(sm), STEP_SM_PERCENT)}):
        at = int(best[step])
        if np.isfinite(least[step]):
            yield HetsevShape(
                gpu_type=profile.gpu_type,
                variant=profile.variant,
                batch=batches[at],
                sm_percent=int(sm[step]),
                memory_gib=float(memory[at, 0]),
                pressure=float(pressure[step]),
                rate_per_second=float(rate[at, step]) * (1 - 1e-9),
                price_per_hour=price * float(share[at, step]),
            )


def _plan(problem: Problem, shapes: Mapping[str, list[HetsevShape]], level: float, fit: str) -> Plan:
    fleet = _fleet(problem, level)
    models = {name: number for number, name in enumerate(sorted(problem.models))}
    remaining = {service.name: service.rate_per_second for service in problem.services.values()}
    full: set[tuple[str, HetsevShape]] = set()  # with no place for another
    placed: list[tuple[CountedInstance, tuple[str, int]]] = []
    while wanted := list(_counted(problem, shapes, remaining, fleet, full)):
        for number in fair_order(
            [(instance.shape.memory_gib, models[instance.service.model]) for instance in wanted], len(models)
        ):
            instance = wanted[number]
            gpus, model = fleet[instance.shape.gpu_type], models[instance.service.model]
            gpu = gpus.fit(instance.shape, model, fit)
            if gpu is None:
                full.add((instance.service.name, instance.shape))
                gpus.give_back(instance.shape, model)
                continue
            gpus.take(gpu, instance.shape, model)
            remaining[instance.service.name] -= instance.rate_per_second
            placed.append((instance, gpus.places[gpu]))
    unserved = tuple(
        Unserved(name, rate, "HetSev's greedy found no GPU with room")
        for name, rate in remaining.items()
        if rate > 1e-9 * problem.services[name].rate_per_second
    )
    return Plan(instances=tuple(_instances(problem, placed)), unserved=unserved)


def _fleet(problem: Problem, level: float) -> dict[str, Gpus]:
    places: dict[str, list[tuple[str, int]]] = {}
    for node in problem.nodes.values():
        places.setdefault(node.gpu_type, []).extend((node.name, gpu) for gpu in node.gpus)
    return {
        name: Gpus(
            places=of,
            sm=np.full(len(of), 100),
            memory_gib=np.full(len(of), problem.gpu_types[name].memory_gib),
            pressure=np.full(len(of), level),
            clients=np.full(len(of), problem.policy.clients_per_gpu),
            models=np.zeros((len(of), len(problem.models)), dtype=np.int64),
            most_alike=problem.policy.same_model_per_gpu,
        )
        for name, of in places.items()
    }


def _counted(
    problem: Problem,
    shapes: Mapping[str, list[HetsevShape]],
    remaining: Mapping[str, float],
    fleet: Mapping[str, Gpus],
    full: set[tuple[str, HetsevShape]],
) -> Iterator[CountedInstance]:
    """H2: the cheapest type's count for each service; as many as there is room for where no type has room for all."""
    models = {name: number for number, name in enumerate(sorted(problem.models))}
    for service in problem.services.values():
        rate, model = remaining[service.name], models[service.model]
        if rate <= 1e-9 * service.rate_per_second:
            continue
        whole: dict[str, tuple[float, HetsevShape, int]] = {}  # by type, the first shape with room for all
        part: tuple[float, HetsevShape, int] | None = None
        for shape in shapes[service.name]:
            gpus = fleet[shape.gpu_type]
            if shape.gpu_type in whole or (service.name, shape) in full or not (room := gpus.room_for(shape, model)):
                continue
            count = ceil(rate / shape.rate_per_second)
            unit = shape.price_per_hour / shape.rate_per_second
            if room >= count:
                whole[shape.gpu_type] = (count * shape.price_per_hour, shape, count)
            elif part is None or unit < part[0]:
                part = (unit, shape, room)
        if whole:
            _, shape, count = min(whole.values(), key=lambda choice: choice[0])
            each = rate / count
        elif part:
            _, shape, count = part
            each = shape.rate_per_second
        else:
            continue
        for _ in range(count):
            fleet[shape.gpu_type].promise(shape, model)
            yield CountedInstance(service, shape, each)


def _instances(problem: Problem, placed: list[tuple[CountedInstance, tuple[str, int]]]) -> Iterator[Instance]:
    """Yields the instances with the timeout that each needs among the neighbours it got."""
    pressure: dict[tuple[str, int], float] = {}
    for instance, place in placed:
        pressure[place] = pressure.get(place, 0.0) + add_parts(instance.shape.pressure)
    for number, (instance, place) in enumerate(placed):
        service, shape = instance.service, instance.shape
        profile = problem.profiles[service.model, shape.variant, shape.gpu_type]
        alone_ms = float(np.interp(shape.sm_percent, *_points(profile.latency_ms[shape.batch])))
        beside = max(0.0, pressure[place] - add_parts(shape.pressure))
        exec_ms = alone_ms * (1 + profile.demand.most_sensitivity * beside)
        judged_ms = exec_ms * (1 + problem.policy.exec_margin)
        timeout_ms = latency.timeout_for(
            shape.batch, judged_ms, service.slo_ms, service.percentile, instance.rate_per_second, service.variation
        )
        yield Instance(
            id=f"h{number}",
            service=service.name,
            node=place[0],
            gpu=place[1],
            variant=shape.variant,
            batch=shape.batch,
            batch_timeout_ms=timeout_ms or 0.0,
            sm_percent=shape.sm_percent,
            memory_gib=shape.memory_gib,
            clock_mhz=problem.gpu_types[shape.gpu_type].top_clock_mhz,
            rate_per_second=instance.rate_per_second,
        )


def _points(curve: tuple[tuple[int, float], ...]) -> tuple[list[int], list[float]]:
    return [point for point, _ in curve], [value for _, value in curve]
