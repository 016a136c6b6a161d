"""The least change of each dimension that serves a service with the others' plan kept, found by solving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10

from solvers.planning.explain.applied import Case, Offer, applied, offer, serves
from solvers.planning.explain.ground import Ground, shares, spot
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Limit, Node, Problem, Service

LONGEST = 1e4  # times the SLO
CLOSE = 1.002  # an SLO is found within this factor
PERCENTILES = (99.9, 99.5, *(float(whole) for whole in range(99, 49, -1)))
MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change: what it says, how large it is, the problem it makes, and the plan that then serves the service."""

    dimension: str
    words: str
    relative: float
    problem: Problem
    plan: Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that serves the service by what is known of its GPUs; the judge has not seen it."""

    dimension: str
    words: str
    relative: float
    changed: Case
    offer: Offer


def relaxations(case: Case) -> Iterator[Relaxation]:
    """Every dimension's least change that helps, the smallest first, each checked by applying it."""
    dimensions = (slo, percentile, rate, variants, gpu_types, gpus, min_instances, tenant_limit, power_budget)
    proposals = [proposal for find in dimensions if (proposal := find(case))]
    for one in sorted(proposals, key=lambda one: one.relative):
        plan = applied(one.changed, one.offer)
        if plan:
            yield Relaxation(one.dimension, one.words, one.relative, one.changed.afresh.problem, plan)


def least(case: Case) -> Relaxation | None:
    """The one of least relative change."""
    return next(relaxations(case), None)


def slo(case: Case) -> Proposal | None:
    """A longer SLO"""
    service = _service(case)

    def longer(slo_ms: float) -> Case:
        return _with_service(case, replace(service, slo_ms=slo_ms))

    low, high = service.slo_ms, service.slo_ms * LONGEST
    if not serves(longer(high)):
        return None
    while high > low * CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if serves(longer(middle)) else (middle, high)
    high = rounded_up(high)
    share = high / service.slo_ms - 1
    words = f"slo.latencyMs: {high:.10g} (now {service.slo_ms:.6g}, +{percent(share)})"
    return _proposed("slo", words, share, longer(high))


def percentile(case: Case) -> Proposal | None:
    """A lower percentile"""
    service = _service(case)
    grid = [value for value in PERCENTILES if value < service.percentile]

    def lower(value: float) -> Case:
        return _with_service(case, replace(service, percentile=value))

    at = _first(len(grid), lambda number: serves(lower(grid[number])) is not None)
    if at is None:
        return None
    share = 1 - grid[at] / service.percentile
    words = f"slo.percentile: {grid[at]:g} (now {service.percentile:g})"
    return _proposed("percentile", words, share, lower(grid[at]))


def rate(case: Case) -> Proposal | None:
    """A lower rate: what can be served, and at least what is"""
    service = _service(case)
    served = sum(one.rate_per_second for one in case.own)
    for most in (offer(case).rate_per_second, served):
        value = rounded_down(most)
        if not value > 0:
            continue
        share = 1 - value / service.rate_per_second
        words = f"ratePerSecond: {value:.10g} (now {service.rate_per_second:.6g}, -{percent(share)})"
        less = _with_service(case, replace(service, rate_per_second=value))
        found = _proposed("rate", words, share, less)
        if found:
            return found
    return None


def variants(case: Case) -> Proposal | None:
    """One variant more, of the best accuracy that helps"""
    service, problem = _service(case), case.afresh.problem
    known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
    lowest = min((known[name] for name in service.variants if name in known), default=None)
    for name in sorted(known, key=lambda name: (-known[name], name)):
        if name in service.variants:
            continue
        wider = _with_service(case, replace(service, variants=(*service.variants, name)))
        drop = 0.0 if not lowest else (lowest - known[name]) / lowest
        share = drop if drop > 0 else 1 / (1 + len(service.variants))
        words = f"variants: [{', '.join((*service.variants, name))}] (accuracy {known[name]:g} admitted)"
        found = _proposed("variants", words, share, wider)
        if found:
            return found
    return None


def gpu_types(case: Case) -> Proposal | None:
    """One GPU type more in gpuTypes"""
    service, problem = _service(case), case.afresh.problem
    if service.gpu_types is None:
        return None
    for name in sorted({node.gpu_type for node in problem.nodes.values()} - set(service.gpu_types)):
        wider = _with_service(case, replace(service, gpu_types=(*service.gpu_types, name)))
        words = f"gpuTypes: [{', '.join((*service.gpu_types, name))}]"
        found = _proposed("gpuTypes", words, 1 / max(len(service.gpu_types), 1), wider)
        if found:
            return found
    return None


def gpus(case: Case) -> Proposal | None:
    """More GPUs of a type, each on a node of its own like one of the fleet's"""
    service, problem = _service(case), case.afresh.problem
    best: tuple[float, str, Case] | None = None
    for name in sorted(service.gpu_types if service.gpu_types is not None else problem.gpu_types):
        if name not in problem.gpu_types or not any(
            (service.model, v, name) in problem.profiles for v in service.variants
        ):
            continue
        there = sum(node.gpus for node in problem.nodes.values() if node.gpu_type == name)
        like, words = _like(problem, service, name)

        def more(number: int, like: Node = like) -> Case:
            return _with_gpus(case, like, number + 1)

        at = _first(MOST_GPUS, lambda number: serves(more(number)) is not None)
        if at is None:
            continue
        share = (at + 1) / max(there, 1)
        text = f"one more GPU of {name} ({words})" if at == 0 else f"{at + 1} more GPUs of {name} ({words})"
        if best is None or share < best[0]:
            best = (share, text, more(at))
    return _proposed("gpus", best[1], best[0], best[2]) if best else None


def min_instances(case: Case) -> Proposal | None:
    """Fewer instances"""
    service = _service(case)
    for number in range(service.min_instances - 1, 0, -1):
        share = 1 - number / service.min_instances
        fewer = _with_service(case, replace(service, min_instances=number))
        found = _proposed("minInstances", f"minInstances: {number} (now {service.min_instances})", share, fewer)
        if found:
            return found
    return None


def tenant_limit(case: Case) -> Proposal | None:
    """A higher limit of its tenant: of GPUs, or of price"""
    service, problem = _service(case), case.afresh.problem
    limit = problem.limits.get(service.tenant)
    if limit is None:
        return None
    best: Proposal | None = None
    for name, now in (("gpus", limit.gpus), ("price_per_hour", limit.price_per_hour)):
        if now is None:
            continue
        found = serves(case.on(_with_limit(problem, service.tenant, replace(limit, **{name: None}))))
        plan = found and applied(case.on(_with_limit(problem, service.tenant, replace(limit, **{name: None}))), found)
        if not plan:
            continue
        needed = rounded_up(taken(problem, plan, service.tenant)[name == "price_per_hour"])
        raised = case.on(_with_limit(problem, service.tenant, replace(limit, **{name: max(needed, now)})))
        words = {"gpus": "gpus", "price_per_hour": "pricePerHour"}[name]
        share = needed / now - 1 if now > 0 else inf
        said = f"limit.{words}: {needed:.10g} of tenant {service.tenant} (now {now:.6g})"
        checked = _proposed("limit", said, share, raised)
        if checked and (best is None or checked.relative < best.relative):
            best = checked
    return best


def power_budget(case: Case) -> Proposal | None:
    """More watts for the fleet"""
    problem = case.afresh.problem
    now = problem.policy.power_budget_w
    if now is None:
        return None

    def more(watts: float) -> Case:
        return case.on(replace(problem, policy=replace(problem.policy, power_budget_w=watts)))

    low, high = now, max(now, 1.0) * LONGEST
    if not serves(more(high)):
        return None
    while high > low * CLOSE:
        middle = (max(low, 1e-3) * high) ** 0.5
        low, high = (low, middle) if serves(more(middle)) else (middle, high)
    high = rounded_up(high)
    share = high / now - 1 if now > 0 else inf
    return _proposed("powerBudgetW", f"powerBudgetW: {high:.10g} (now {now:.6g})", share, more(high))


def _proposed(dimension: str, words: str, relative: float, changed: Case) -> Proposal | None:
    found = serves(changed)
    return Proposal(dimension, words, relative, changed, found) if found else None


def _service(case: Case) -> Service:
    return case.afresh.problem.services[case.name]


def _with_service(case: Case, service: Service) -> Case:
    problem = case.afresh.problem
    return case.on(replace(problem, services={**problem.services, service.name: service}))


def _with_limit(problem: Problem, tenant: str, limit: Limit) -> Problem:
    return replace(problem, limits={**problem.limits, tenant: limit})


def _like(problem: Problem, service: Service, gpu_type: str) -> tuple[Node, str]:
    """The node that one more GPU stands on: like the cheapest of its type, or roomy where the fleet has none."""
    nodes = [node for node in problem.nodes.values() if node.gpu_type == gpu_type]
    known = min(nodes, key=lambda node: (node.templates is not None, node.price_per_hour, node.name), default=None)
    if known:
        return known, f"on a node like {known.name}"
    demands = [
        profile.demand for key, profile in problem.profiles.items()
        if key[0] == service.model and key[1] in service.variants and key[2] == gpu_type
    ]  # fmt: skip
    cores = max(1.0, *(demand.cpu_cores for demand in demands))
    host = max(1.0, *(demand.host_memory_gib for demand in demands))
    words = f"on a node with {cores:g} CPU cores and {host:g} GiB for each"
    return Node("", gpu_type, 1, cores, host, 1.0), words


def _with_gpus(case: Case, like: Node, number: int) -> Case:
    problem = case.afresh.problem
    fresh: list[Node] = []
    while len(fresh) < number:
        name = f"new-{len(fresh) + 1}"
        while name in problem.nodes:
            name += "-more"
        fresh.append(replace(like, name=name, gpus=1))
    larger = replace(problem, nodes={**problem.nodes, **{node.name: node for node in fresh}})
    spots = tuple(spot(larger, (node.name, 0), [], []) for node in fresh)

    def grown(ground: Ground) -> Ground:
        return replace(
            ground,
            problem=larger,
            spots=ground.spots + spots,
            cpu_cores={**ground.cpu_cores, **{node.name: node.cpu_cores for node in fresh}},
            host_memory_gib={**ground.host_memory_gib, **{node.name: node.host_memory_gib for node in fresh}},
            drawn_w=ground.drawn_w + problem.gpu_types[like.gpu_type].idle_w * number,
        )

    return replace(case, afresh=grown(case.afresh), beside=grown(case.beside) if case.beside else None)


def taken(problem: Problem, plan: Plan, tenant: str) -> tuple[float, float]:
    """What a tenant's instances take: GPUs, and their price an hour."""
    at: dict[tuple[str, int], list[Instance]] = {}
    for one in plan.instances:
        at.setdefault(one.place, []).append(one)
    gpus = price = 0.0
    for (node, _), residents in at.items():
        share = shares(problem, residents).get(tenant, 0.0)
        gpus, price = gpus + share, price + share * problem.nodes[node].price_per_hour
    return gpus, price


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The first number below `count` from which on it holds, where more is never worse; looked for near 0 first."""
    if not count or not holds(count - 1):
        return None
    low, high, step = -1, count - 1, 1
    while low + step < high:
        if holds(low + step):
            high = low + step
            break
        low, step = low + step, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def rounded_up(value: float) -> float:
    """To four digits."""
    step = 10.0 ** (floor(log10(value)) - 3) if value > 0 else 1.0
    return float(f"{ceil(value / step * (1 - 1e-12)) * step:.4g}")


def rounded_down(value: float) -> float:
    """To four digits."""
    if not value > 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 3)
    return float(f"{floor(value / step * (1 + 1e-12)) * step:.4g}")


def percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 1 else f"{share * 100:.0f} %"
