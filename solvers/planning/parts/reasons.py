"""Says where a service's rules of availability leave it unserved, and what keeping them costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.planning.availability import ANYWHERE, Availability
from solvers.planning.explain import explained
from solvers.planning.parts.divide import divider
from solvers.planning.parts.groups import rate_of_part
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem, Service

ROOM = "there is room for it"  # begins the reason of a service that could be served without its rules


def explain_parts(problem: Problem, plan: Plan) -> tuple[Unserved, ...]:
    """Returns the unserved services with reasons; rules of availability are named where there is room without them."""
    asking = {
        entry.service: entry.reason
        for entry in plan.unserved
        if (service := problem.services[entry.service]).availability.binds(service.min_instances)
    }
    if not asking:
        return explained(problem, plan)
    free = drop_rules(problem, asking)
    return tuple(
        _add_reason(problem.services[entry.service], entry, asking[entry.service]) if entry.service in asking else entry
        for entry in explained(free, plan)
    )


def drop_rules(problem: Problem, names: Mapping[str, object] | Sequence[str]) -> Problem:
    """Returns the problem in which these services may run anywhere."""
    lifted = {name: replace(problem.services[name], availability=ANYWHERE) for name in names}
    return replace(problem, services={**problem.services, **lifted})


def _add_reason(service: Service, entry: Unserved, known: str) -> Unserved:
    rules = spell_rules(service.availability)
    if known:
        return replace(entry, reason=known, relaxation=f"its availability without: {rules}")
    if entry.reason.startswith(ROOM):
        reason = f"{entry.reason.split(',')[0]}, but not by its availability: {rules}"
        return replace(entry, reason=reason, relaxation=f"its availability without: {rules}")
    return entry


def spell_rules(rules: Availability) -> str:
    """Spells the rules that are not the usual ones."""
    words = [] if rules.spread == "gpu" else [f"spread {rules.spread}"]
    words += [f"surviveNodes {rules.survive_nodes}"] if rules.survive_nodes else []
    words += [f"maxSpotShare {rules.max_spot_share:g}"] if rules.max_spot_share < 1 else []
    return ", ".join(words)


@dataclass(frozen=True, slots=True)
class RulePrice:
    """Returns about what it costs an hour to keep a service's rules, by the shares of GPUs that it takes."""

    rules: str
    per_hour: float


def price_of_rules(problem: Problem, name: str) -> RulePrice | None:
    """Returns what the rules of a service add to the price of the shares that it takes; None if it has none.

    Each group of its parts is priced where its nodes carry it for least, and so is the whole service anywhere.
    """
    service = problem.services[name]
    begun = divider(problem, problem.state.running if problem.state else ()) if _binds(service) else None
    if begun is None:
        return None
    division, cost = begun.division(), begun.estimate.cost
    parts = division.parts.get(name, ())
    groups: dict[int, set[str]] = {}
    for part in parts:
        groups.setdefault(part.group, set()).update(part.cells)
    nodes = list(division.problem.nodes.values())
    rate = rate_of_part(problem, service, max(len(groups), 1))
    with_rules = sum(cost(name, rate, [node for node in nodes if node.cell in cells]) for cells in groups.values())
    extra = with_rules - cost(name, service.rate_per_second, nodes)
    return RulePrice(spell_rules(service.availability), max(0.0, extra)) if parts else None


def _binds(service: Service) -> bool:
    return service.availability.binds(service.min_instances)
