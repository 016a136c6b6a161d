"""Baselines: three other ways to serve what the plan serves, and what each would cost a tenant per hour.

`one_per_gpu` and `largest` are the planners of these names, asked and judged like every planner, on as many GPUs as
they can use. `hetsev`: HetSev's greedy chooses the number and type of instances of each service; they share GPUs by
first fit. Its planner spreads instances by worst fit, and would open a GPU for each where GPUs never run out.

Only equal service is compared: a service that a baseline does not serve whole costs in it what the plan pays.
Where nodes are billed whole, a baseline pays all GPUs of the nodes that hold its own, divided evenly among these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.control.answer.savings.market import list_pools, open_market, open_node_per_type
from app.control.answer.savings.shares import GpuHolding, PaidGpu, list_gpus, price_services, sum_by_tenant
from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import InstanceType, ScalingPromise
from solvers.hetsev.scaling.problem import ScalingProblem as Scaling
from solvers.planners.ask import PlanRefused, find_plan
from solvers.planners.names import LARGEST, ONE_PER_GPU
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.solve import SolveBudget

Baseline = Literal["one_per_gpu", "hetsev", "largest"]
BASELINES: tuple[Baseline, ...] = ("one_per_gpu", "hetsev", "largest")
PLANNERS: Mapping[Baseline, str] = {"one_per_gpu": ONE_PER_GPU, "largest": LARGEST}
MOST_ROUNDS = 3  # of a planner without the services that it did not serve whole
BaselineGpus = dict[tuple[str, str], list[GpuHolding]]  # by GPU type and name of the GPU


@dataclass(frozen=True, slots=True)
class BaselineCost:
    """The cost of a baseline per hour by tenant, and the services that it does not serve as the plan does."""

    by_tenant: Mapping[str, float]
    not_served: tuple[str, ...]


def rates_served(plan: Plan) -> dict[str, float]:
    """Returns the rate that the plan carries by service."""
    found: dict[str, float] = defaultdict(float)
    for instance in plan.instances:
        found[instance.service] += instance.rate_per_second
    return dict(found)


def costs(problem: Problem, plan: Plan) -> dict[Baseline, BaselineCost]:
    """Returns what each baseline costs; a service that it does not serve whole costs what the plan pays."""
    rates = rates_served(plan)
    paid = price_services(problem, list_gpus(problem, plan))
    found: dict[Baseline, BaselineCost] = {}
    for baseline in BASELINES:
        gpus = place_baseline(problem, rates, baseline)
        is_alone = baseline == "one_per_gpu"
        needed = Counter(name for name, _ in gpus)
        price = {name: least_rent(problem, name, count) / count for name, count in needed.items()}
        pays = price_services(
            problem, (PaidGpu(name, price[name], tuple(on), is_alone) for (name, _), on in gpus.items())
        )
        by_name = {service: pays.get(service, paid[service]) for service in rates}
        not_served = tuple(sorted(rates.keys() - pays.keys()))
        found[baseline] = BaselineCost(sum_by_tenant(problem, by_name), not_served)
    return found


def plan_costs(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns what the services of each tenant pay for GPUs per hour; energy and jobs are left out on both sides."""
    return sum_by_tenant(problem, price_services(problem, list_gpus(problem, plan)))


def place_baseline(problem: Problem, rates: Mapping[str, float], baseline: Baseline) -> BaselineGpus:
    """Returns the GPUs of a baseline; services that it does not serve whole are on none."""
    gpus: BaselineGpus = defaultdict(list)
    if planner := PLANNERS.get(baseline):
        market = open_market(problem, rates)
        instances: Sequence[Instance] = plan_whole_services(market, planner).instances
    else:
        market, instances = place_hetsev(problem, rates)
    for line in instances:
        holding = GpuHolding(line.service, line.sm_percent, line.memory_gib)
        gpus[market.nodes[line.node].gpu_type, f"{line.node}/{line.gpu}"].append(holding)
    return gpus


def plan_whole_services(market: Problem, planner: str) -> Plan:
    """Returns the instances of services that the planner serves whole; the others are left out, and asked no more."""
    instances: tuple[Instance, ...] = ()
    for _ in range(MOST_ROUNDS):
        if not market.services:
            break
        try:
            plan = find_plan(market, planner, SolveBudget(seconds=None), alone=True, bounds=False).plan
        except PlanRefused:
            break
        lacking = {rest.service for rest in plan.unserved}
        instances = tuple(line for line in plan.instances if line.service not in lacking)
        if not lacking:
            break
        market = replace(market, services={n: service for n, service in market.services.items() if n not in lacking})
    return Plan(instances)


def place_hetsev(problem: Problem, rates: Mapping[str, float]) -> tuple[Problem, list[Instance]]:
    """Returns all instances of HetSev's greedy, on the first GPU with room; services that it cannot serve have none."""
    offers, pools = read_offers(problem), list_pools(problem)
    wanted: list[tuple[Service, FleetShape]] = []
    for name, rate in sorted(rates.items()):
        service = problem.services[name]
        wanted += _hetsev(problem, service, offers.find_lone_shapes(service, pools), rate)
    wanted.sort(key=lambda entry: (-entry[1].share, entry[0].name))  # the largest first
    market = open_node_per_type(problem, Counter(shape.pool.gpu_type for _, shape in wanted))
    rooms, found = FleetRooms(market, (), (), counts_watts=False), []
    for service, shape in wanted:
        place = rooms.first_place(shape, service)
        assert place, "the market has a GPU for each"
        found.append(replace(rooms.start_on(place, shape, service), rate_per_second=shape.rate_per_second))
    return market, found


def _hetsev(
    problem: Problem, service: Service, known: Sequence[FleetShape], rate: float
) -> list[tuple[Service, FleetShape]]:
    """Runs HetSev's heuristic over one shape per type: the cheapest by rate. It bills the memory that is held."""
    best: dict[str, FleetShape] = {}
    for shape in known:
        before = best.get(shape.pool.gpu_type)
        if before is None or shape.share / shape.rate_per_second < before.share / before.rate_per_second:
            best[shape.pool.gpu_type] = shape
    if not best:
        return []
    kinds = tuple(
        InstanceType(
            name=name,
            throughput_per_second=shape.rate_per_second,
            exec_ms=shape.exec_ms,
            gpu_memory_gib=shape.share * problem.gpu_types[name].memory_gib,
            price_per_gib=shape.pool.price_per_hour / problem.gpu_types[name].memory_gib,
        )
        for name, shape in sorted(best.items())
    )
    counts = greedy.solve(Scaling(rate, ScalingPromise(service.slo_ms, service.percentile), kinds))
    found = [(service, best[name]) for name, count in sorted(counts.items()) for _ in range(count)]
    return found + found[-1:] * (service.min_instances - len(found))


def least_rent(problem: Problem, gpu_type: str, gpus: int) -> float:
    """Returns the least price per hour of so many GPUs of a type, on any number of nodes like those of the fleet."""
    ways: dict[int, float] = {}  # GPUs: the least price of so many, taken together
    for node in problem.nodes.values():
        if node.gpu_type == gpu_type:
            is_whole = is_billed_whole(node, problem.policy)
            size, price = (node.gpu_count, whole_price(node)) if is_whole else (1, node.price_per_hour)
            ways[size] = min(ways.get(size, price), price)
    least = [0.0]
    for needed in range(1, gpus + 1):
        least.append(min(price + least[max(0, needed - size)] for size, price in ways.items()))
    return least[gpus]
