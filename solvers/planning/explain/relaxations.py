"""The least change of each dimension that serves a service with the others' plan kept, found by solving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log, log10

from solvers.planning.explain.applied import Offer, RelaxedCase, applied, offer, serves
from solvers.planning.explain.free_capacity import FreeCapacity, with_nodes
from solvers.planning.explain.gpu_groups import empty, lot
from solvers.planning.explain.meter import SpentError
from solvers.planning.explain.options import admitted, options
from solvers.planning.explain.seats import ENOUGH, shares_of, watts_of
from solvers.planning.plan import Plan
from solvers.planning.problem import Limit, Node, Problem

LONGEST = 1e3  # times the longest exec of any batch, and times the SLO: an SLO beyond it changes nothing
CLOSE = 1.002  # an SLO is found within this factor, a limit within this part of its raise
PERCENTILES = (99.5, *(float(whole) for whole in range(99, 49, -1)))
MOST_GPUS = 4096


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
    changed: RelaxedCase
    offer: Offer


@dataclass(frozen=True, slots=True)
class RelaxationSearch:
    """The least change found, and whether every dimension was looked at to its end."""

    least: Relaxation | None
    is_whole: bool


def least(case: RelaxedCase) -> RelaxationSearch:
    """The one of least relative change, as far as the steps that the case's meter allows."""
    best: Relaxation | None = None
    try:
        for find in DIMENSIONS:
            found = find(case, best.relative if best else inf)
            if found and (best is None or found.relative < best.relative):
                best = checked(found) or best
    except SpentError:
        return RelaxationSearch(best, False)
    return RelaxationSearch(best, True)


def rate(case: RelaxedCase, below: float) -> Proposal | None:
    """A lower rate: what can be served, and at least what is"""
    asked = case.terms.service.rate_per_second
    served = sum(one.rate_per_second for one in case.own)
    for most in (offer(case).rate_per_second, served):
        value = rounded_down(most)
        if not value > 0:
            continue
        share = 1 - value / asked
        words = f"ratePerSecond: {value:.10g} (now {asked:.6g}, -{percent(share)})"
        found = _proposed("rate", words, share, case.wishing(rate_per_second=value)) if share < below else None
        if found:
            return found
    return None


def gpus(case: RelaxedCase, below: float) -> Proposal | None:
    """More GPUs of a type, each on a node of its own like one of the fleet's"""
    service, problem = case.terms.service, case.problem
    best: Proposal | None = None
    served = offer(case).rate_per_second
    for name in sorted(service.gpu_types if service.gpu_types is not None else problem.gpu_types):
        if name not in problem.gpu_types or not any(
            (service.model, v, name) in problem.profiles for v in service.variants
        ):
            continue
        there = max(sum(node.gpu_count for node in problem.nodes.values() if node.gpu_type == name), 1)
        like, words = _like(case, name)
        carries = _most_on(case, like)
        if not carries > 0:
            continue
        # Fewer than these cannot be enough; a few more may be, as loads are not to be too uneven.
        fewest = max(1, ceil((service.rate_per_second * ENOUGH - served) / carries))
        most = fewest + max(fewest, service.min_instances, 8)
        most = min(most, MOST_GPUS, most if below == inf else ceil(below * there))

        def more(number: int, like: Node = like, fewest: int = fewest) -> RelaxedCase:
            return _with_gpus(case, like, fewest + number)

        at = _first(most - fewest + 1, lambda number, more=more: serves(more(number)) is not None)  # type: ignore[misc]
        if at is None:
            continue
        number = fewest + at
        text = f"one more GPU of {name} ({words})" if number == 1 else f"{number} more GPUs of {name} ({words})"
        if number / there < below:
            best = _proposed("gpus", text, number / there, more(at)) or best
            below = best.relative if best else below
    return best


def min_instances(case: RelaxedCase, below: float) -> Proposal | None:
    """Fewer instances"""
    now = case.terms.service.min_instances

    def fewer(number: int) -> RelaxedCase:
        return case.wishing(min_instances=now - 1 - number)

    most = now - 1 if below == inf else min(now, ceil(below * now)) - 1
    at = _first(most, lambda number: serves(fewer(number)) is not None)
    if at is None:
        return None
    wanted = now - 1 - at
    return _proposed("minInstances", f"minInstances: {wanted} (now {now})", 1 - wanted / now, fewer(at))


def tenant_limit(case: RelaxedCase, below: float) -> Proposal | None:
    """A higher limit of its tenant: of GPUs, or of price; of both where neither alone helps"""
    limit = case.terms.limit
    if limit is None:
        return None

    def helping(*ways: tuple[str, ...]) -> list[tuple[tuple[str, ...], Offer]]:
        """Limits without which it is served, and how."""
        lifted = [(names, serves(case.under(limit=replace(limit, **dict.fromkeys(names))))) for names in ways]
        return [(names, found) for names, found in lifted if found]

    alone = [(name,) for name in ("gpus", "price_per_hour") if getattr(limit, name) is not None]
    ways = helping(*alone) or (helping(("gpus", "price_per_hour")) if len(alone) == 2 else [])
    raised = [one for names, found in ways if (one := _raised(case, limit, names, found, below))]
    return min(raised, key=lambda one: one.relative, default=None)


def power_budget(case: RelaxedCase, below: float) -> Proposal | None:
    """More watts for the fleet"""
    now = case.terms.policy.power_budget_w
    if now is None:
        return None
    policy = case.terms.policy

    def more(watts: float) -> RelaxedCase:
        return case.under(policy=replace(policy, power_budget_w=watts))

    found = serves(more(1e300))
    if not found:
        return None
    ground = case.beside if found.kept else case.afresh
    assert ground
    enough = (ground.drawn_w + watts_of(found.found)) * (1 + 1e-8)
    budget = _least_raise([now], [enough], below, lambda value: more(value[0]))
    if budget is None:
        return None
    words = f"powerBudgetW: {budget[0]:.10g} (now {now:.6g})"
    return _proposed("powerBudgetW", words, _part_raised([now], budget), more(budget[0]))


def variants(case: RelaxedCase, below: float) -> Proposal | None:
    """One variant more, of the best accuracy that helps"""
    service = case.terms.service
    known = {variant.name: variant.accuracy for variant in case.problem.models[service.model]}
    lowest = min((known[name] for name in service.variants if name in known), default=None)
    for name in sorted(known, key=lambda name: (-known[name], name)):
        if name in service.variants:
            continue
        drop = 0.0 if not lowest else (lowest - known[name]) / lowest
        share = drop if drop > 0 else 1 / (1 + len(service.variants))
        words = f"variants: [{', '.join((*service.variants, name))}] (accuracy {known[name]:g} admitted)"
        wider = case.wishing(variants=(*service.variants, name))
        found = _proposed("variants", words, share, wider) if share < below else None
        if found:
            return found
    return None


def gpu_types(case: RelaxedCase, below: float) -> Proposal | None:
    """One GPU type more in gpuTypes"""
    service, problem = case.terms.service, case.problem
    if service.gpu_types is None or 1 / max(len(service.gpu_types), 1) >= below:
        return None
    for name in sorted({node.gpu_type for node in problem.nodes.values()} - set(service.gpu_types)):
        words = f"gpuTypes: [{', '.join((*service.gpu_types, name))}]"
        wider = case.wishing(gpu_types=(*service.gpu_types, name))
        found = _proposed("gpuTypes", words, 1 / max(len(service.gpu_types), 1), wider)
        if found:
            return found
    return None


def slo(case: RelaxedCase, below: float) -> Proposal | None:
    """A longer SLO"""
    now = case.terms.service.slo_ms
    longest = min(longest_slo_ms(case) / now, 1 + below)

    def longer(number: int) -> RelaxedCase:
        return case.wishing(slo_ms=rounded_up(now * CLOSE ** (number + 1)))

    at = _first(floor(log(longest) / log(CLOSE)), lambda number: serves(longer(number)) is not None)
    if at is None:
        return None
    slo_ms = longer(at).terms.service.slo_ms
    share = slo_ms / now - 1
    return _proposed("slo", f"slo.latencyMs: {slo_ms:.10g} (now {now:.6g}, {longer_by(share)})", share, longer(at))


def longest_slo_ms(case: RelaxedCase) -> float:
    """An SLO so long that a longer one changes nothing."""
    execs = [
        time for key, profile in case.problem.profiles.items() if key[0] == case.terms.service.model
        for curve in profile.latency_ms.values() for _, time in curve
    ]  # fmt: skip
    return max(case.terms.service.slo_ms, *execs, 0.0) * LONGEST


def percentile(case: RelaxedCase, below: float) -> Proposal | None:
    """A lower percentile"""
    now = case.terms.service.percentile
    grid = [value for value in PERCENTILES if value < now and 1 - value / now < below]
    at = _first(len(grid), lambda number: serves(case.wishing(percentile=grid[number])) is not None)
    if at is None:
        return None
    words = f"slo.percentile: {grid[at]:g} (now {now:g})"
    return _proposed("percentile", words, 1 - grid[at] / now, case.wishing(percentile=grid[at]))


# What is told from what is known of the GPUs comes first: what it finds spares the others work.
DIMENSIONS = (rate, gpus, min_instances, tenant_limit, power_budget, variants, gpu_types, percentile, slo)


def checked(one: Proposal) -> Relaxation | None:
    """The change as applied, where the judge finds it right."""
    plan = applied(one.changed, one.offer)
    return Relaxation(one.dimension, one.words, one.relative, one.changed.changed, plan) if plan else None


def _proposed(dimension: str, words: str, relative: float, changed: RelaxedCase) -> Proposal | None:
    found = serves(changed)
    return Proposal(dimension, words, relative, changed, found) if found else None


def _raised(case: RelaxedCase, limit: Limit, names: tuple[str, ...], found: Offer, below: float) -> Proposal | None:
    """The least raise of these limits together that serves the service, which it is without them as `found`."""

    def under(values: list[float]) -> RelaxedCase:
        return case.under(limit=replace(limit, **dict(zip(names, values, strict=True))))

    ground, service = case.beside if found.kept else case.afresh, case.terms.service
    assert ground
    tenant, (more, dearer) = service.tenant, shares_of(found.found, service)
    enough = {
        "gpus": ground.gpus_taken.get(tenant, 0.0) + more,
        "price_per_hour": ground.price_taken.get(tenant, 0.0) + dearer,
    }
    now = [getattr(limit, name) for name in names]
    values = _least_raise(now, [enough[name] * (1 + 1e-8) for name in names], below, under)
    if values is None:
        return None
    said = ", ".join(
        f"limit.{FIELDS[name]}: {value:.10g} (now {was:.6g})"
        for name, value, was in zip(names, values, now, strict=True)
    )
    return _proposed("limit", f"{said} of tenant {tenant}", _part_raised(now, values), under(values))


FIELDS = {"gpus": "gpus", "price_per_hour": "pricePerHour"}


def _least_raise(
    low: list[float], high: list[float], below: float, under: Callable[[list[float]], RelaxedCase]
) -> list[float] | None:  # fmt: skip
    """Numbers between two ends, in equal parts of the way, as low as serve; the high end is known to.

    None where they would have to be raised by a part beyond `below`: what lies there is not looked at.
    """

    def at(part: float) -> list[float]:
        return [rounded_up(a + (max(b, a) - a) * part) for a, b in zip(low, high, strict=True)]

    less, part = 0.0, 1.0
    while part - less > CLOSE - 1:
        middle = (less + part) / 2
        values = at(middle)
        is_enough = _part_raised(low, values) > below or serves(under(values)) is not None
        less, part = (less, middle) if is_enough else (middle, part)
    values = at(part)
    return None if _part_raised(low, values) > below else values


def _part_raised(now: list[float], raised: list[float]) -> float:
    """The larger raise of them, as a part of what is."""
    return max(value / was - 1 if was > 0 else inf for value, was in zip(raised, now, strict=True))


def _like(case: RelaxedCase, gpu_type: str) -> tuple[Node, str]:
    """The node that one more GPU stands on: like the cheapest that suits; where there is none, one that would."""
    problem, service = case.problem, case.terms.service
    demands = [
        profile.demand for key, profile in problem.profiles.items()
        if key[0] == service.model and key[1] in service.variants and key[2] == gpu_type
    ]  # fmt: skip
    nodes = [node for node in problem.nodes.values() if node.gpu_type == gpu_type]
    suiting = [
        node for node in {(n.price_per_hour, n.templates, n.cpu_cores, n.host_memory_gib): n for n in nodes}.values()
        if any(
            one.demand.cpu_cores <= node.cpu_cores and one.demand.host_memory_gib <= node.host_memory_gib
            for one in admitted(problem, node, service)
        )
    ]  # fmt: skip
    known = min(suiting, key=lambda node: (node.price_per_hour, node.name), default=None)
    if known:
        return known, f"on a node like {known.name}"
    cores = max(1.0, *(demand.cpu_cores for demand in demands))
    host = max(1.0, *(demand.host_memory_gib for demand in demands))
    price = min((node.price_per_hour for node in nodes), default=1.0)
    words = f"on a node with {cores:g} CPU cores and {host:g} GiB for each"
    if any(not list(admitted(problem, node, service)) for node in nodes):
        words += " that offers its template"
    limit = case.terms.limit
    words += f", at {price:g} an hour" if limit and limit.price_per_hour is not None else ""
    return Node("", gpu_type, (0,), cores, host, price), words


def _most_on(case: RelaxedCase, like: Node) -> float:
    """The most that one instance carries on an empty GPU of such a node."""
    spots = lot([empty(case.problem, like, [(like.name, 0)])])
    cap = options(case.problem, spots, case.terms, case.notes).cap
    return float(cap.max()) if cap.size else 0.0


def _with_gpus(case: RelaxedCase, like: Node, number: int) -> RelaxedCase:
    fresh: list[Node] = []
    while len(fresh) < number:
        name = f"new-{len(fresh) + 1}"
        while name in case.problem.nodes:
            name += "-more"
        fresh.append(replace(like, name=name, gpus=(0,)))

    def grown(ground: FreeCapacity) -> FreeCapacity:
        return with_nodes(ground, fresh)

    return replace(case.on(grown), more=tuple(fresh))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The first number below `count` from which on it holds, where more is never worse; looked for near 0 first."""
    if count < 1 or not holds(count - 1):
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
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def longer_by(share: float) -> str:
    return f"+{percent(share)}" if share < 10 else f"{share + 1:.4g} times"
