"""Proposes changes of capacity: GPUs, minInstances, a tenant's limits, the power budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil, inf

from solvers.planning.explain.applied import Offer, RelaxedCase, find_offer, find_whole_offer
from solvers.planning.explain.proposals import CLOSE_FACTOR, Proposal, least_number, propose
from solvers.planning.explain.rounding import rounded_up
from solvers.planning.explain.seats import ENOUGH_SHARE
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.room_view import RoomView
from solvers.planning.problem import Limit, Node


def gpus(case: RelaxedCase, below: float) -> Proposal | None:
    """More GPUs of a type, each on a node of its own like one of the fleet's"""
    service, problem = case.terms.service, case.problem
    best: Proposal | None = None
    served = find_offer(case).rate_per_second
    for name in sorted(service.gpu_types if service.gpu_types is not None else problem.gpu_types):
        if name not in problem.gpu_types or not any(
            (service.model, v, name) in problem.profiles for v in service.variants
        ):
            continue
        there = max(sum(node.gpu_count for node in problem.nodes.values() if node.gpu_type == name), 1)
        like, words = _like(case, name)
        view = RoomView.idle([(like, like.type_at(0, problem.gpu_types[name]), [(like.name, 0)])])
        carries = float(case.grounds[0].find_shapes(view, case.terms, case.notes).cap.max(initial=0.0))
        if not carries > 0:
            continue
        # Fewer GPUs cannot be enough; a few more may be needed, because loads must not be too uneven.
        fewest = max(1, ceil((service.rate_per_second * ENOUGH_SHARE - served) / carries))
        most = fewest + max(fewest, service.min_instances, 8)
        most = min(most, MOST_GPUS, most if below == inf else ceil(below * there))

        more = partial(_add_gpus, case, like, view)

        def is_enough(number: int, more: Callable[[int], RelaxedCase] = more, fewest: int = fewest) -> bool:
            return find_whole_offer(more(fewest + number)) is not None

        at = least_number(most - fewest + 1, is_enough)
        if at is None:
            continue
        number = fewest + at
        text = f"one more GPU of {name} ({words})" if number == 1 else f"{number} more GPUs of {name} ({words})"
        if number / there < below:
            best = propose("gpus", text, number / there, more(number)) or best
            below = best.relative if best else below
    return best


def min_instances(case: RelaxedCase, below: float) -> Proposal | None:
    """Fewer instances"""
    now = case.terms.service.min_instances

    def fewer(number: int) -> RelaxedCase:
        return case.wishing(min_instances=now - 1 - number)

    most = now - 1 if below == inf else min(now, ceil(below * now)) - 1
    at = least_number(most, lambda number: find_whole_offer(fewer(number)) is not None)
    if at is None:
        return None
    wanted = now - 1 - at
    return propose("minInstances", f"minInstances: {wanted} (now {now})", 1 - wanted / now, fewer(at))


def tenant_limit(case: RelaxedCase, below: float) -> Proposal | None:
    """A higher limit of its tenant: of GPUs, or of price; of both where neither alone helps"""
    limit = case.terms.limit
    if limit is None or limit.source == "budget":  # a larger budget lifts that, by an amount that time decides
        return None

    def helping(*ways: tuple[str, ...]) -> list[tuple[tuple[str, ...], Offer]]:
        """Returns the limits without which it is served, each with the offer."""
        lifted = [(names, find_whole_offer(case.under(limit=_changed(limit, dict.fromkeys(names))))) for names in ways]
        return [(names, found) for names, found in lifted if found]

    own = ("gpus", "price_per_hour") if limit.source == "declared" else ("price_per_hour",)  # a share is not declared
    alone = [(name,) for name in own if getattr(limit, name) is not None]
    ways = helping(*alone) or (helping(("gpus", "price_per_hour")) if len(alone) == 2 else [])
    raised = [raise_ for names, found in ways if (raise_ := _raised(case, limit, names, found, below))]
    return min(raised, key=lambda proposal: proposal.relative, default=None)


def power_budget(case: RelaxedCase, below: float) -> Proposal | None:
    """More watts for the fleet"""
    now = case.terms.policy.power_budget_w
    if now is None:
        return None
    policy = case.terms.policy

    def more(watts: float) -> RelaxedCase:
        return case.under(policy=replace(policy, power_budget_w=watts))

    found = find_whole_offer(more(1e300))
    if not found:
        return None
    assert found.found.commons
    enough = found.found.commons.drawn_w * (1 + 1e-8)
    budget = _least_raise([now], [enough], below, lambda value: more(value[0]))
    if budget is None:
        return None
    words = f"powerBudgetW: {budget[0]:.10g} (now {now:.6g})"
    return propose("powerBudgetW", words, _part_raised([now], budget), more(budget[0]))


def _changed(limit: Limit, values: Mapping[str, float | None]) -> Limit:
    """Returns the limit with other GPUs or another price, and with its source."""
    return Limit(values.get("gpus", limit.gpus), values.get("price_per_hour", limit.price_per_hour), limit.source)


def _raised(case: RelaxedCase, limit: Limit, names: tuple[str, ...], found: Offer, below: float) -> Proposal | None:
    """Finds the least raise of these limits that serves the service; without them it is served as in `found`."""

    def under(values: list[float]) -> RelaxedCase:
        return case.under(limit=_changed(limit, dict(zip(names, values, strict=True))))

    tenant, commons = case.terms.service.tenant, found.found.commons
    assert commons
    enough = {"gpus": commons.gpus_taken[tenant], "price_per_hour": commons.price_taken[tenant]}
    now = [getattr(limit, name) for name in names]
    values = _least_raise(now, [enough[name] * (1 + 1e-8) for name in names], below, under)
    if values is None:
        return None
    words = ", ".join(
        f"limit.{LIMIT_FIELDS[name]}: {value:.10g} (now {was:.6g})"
        for name, value, was in zip(names, values, now, strict=True)
    )
    return propose("limit", f"{words} of tenant {tenant}", _part_raised(now, values), under(values))


def _least_raise(
    low: list[float], high: list[float], below: float, under: Callable[[list[float]], RelaxedCase]
) -> list[float] | None:  # fmt: skip
    """Finds the lowest values between `low` and `high`, all raised by the same part of the way, that serve.

    The high end is known to serve. None if the relative raise would exceed `below`.
    """

    def at(part: float) -> list[float]:
        return [rounded_up(a + (max(b, a) - a) * part) for a, b in zip(low, high, strict=True)]

    less, part = 0.0, 1.0
    while part - less > CLOSE_FACTOR - 1:
        middle = (less + part) / 2
        values = at(middle)
        is_enough = _part_raised(low, values) > below or find_whole_offer(under(values)) is not None
        less, part = (less, middle) if is_enough else (middle, part)
    values = at(part)
    return None if _part_raised(low, values) > below else values


def _part_raised(now: list[float], raised: list[float]) -> float:
    """Returns the largest relative raise."""
    return max(value / was - 1 if was > 0 else inf for value, was in zip(raised, now, strict=True))


def _like(case: RelaxedCase, gpu_type: str) -> tuple[Node, str]:
    """Describes the node of one more GPU: like the cheapest that suits or, if none does, a node that would."""
    problem, service = case.problem, case.terms.service
    offers = read_offers(problem)
    demands = [
        profile.demand for key, profile in problem.profiles.items()
        if key[0] == service.model and key[1] in service.variants and key[2] == gpu_type
    ]  # fmt: skip
    nodes = [node for node in problem.nodes.values() if node.gpu_type == gpu_type]
    suiting = [
        node for node in {
            (n.price_per_hour, n.templates, n.cpu_cores, n.host_memory_gib, n.caps_w): n for n in nodes
        }.values()
        if any(
            profile.demand.cpu_cores <= node.cpu_cores and profile.demand.host_memory_gib <= node.host_memory_gib
            for profile in offers.find_profiles(service, node)
        )
    ]  # fmt: skip
    known = min(suiting, key=lambda node: (node.price_per_hour, node.name), default=None)
    if known:
        like = replace(known, caps_w=(max(known.caps_w, default=0.0),) * len(known.caps_w))
    else:
        price = min((node.price_per_hour for node in nodes), default=1.0)
        cores = max(1.0, *(demand.cpu_cores for demand in demands))
        like = Node("", gpu_type, (0,), cores, max(1.0, *(demand.host_memory_gib for demand in demands)), price)
    # By what it has, not by a name: the reader may run nothing on the node that it is like.
    cores = like.cpu_cores
    words = f"on a node with {cores:g} CPU core{'' if cores == 1 else 's'} and {like.host_memory_gib:g} GiB for each"
    if any(not offers.find_profiles(service, node) for node in nodes):
        words += " that offers its template, or admits its own runtime"
    limit = case.terms.limit
    words += f", at {like.price_per_hour:g} an hour" if limit and limit.price_per_hour is not None else ""
    return like, words + (f", with capW {like.caps_w[0]:g}" if like.caps_w else "")


def _add_gpus(case: RelaxedCase, like: Node, view: RoomView, number: int) -> RelaxedCase:
    """Returns the case with so many more nodes like this one, each with the GPU that the view shows."""
    fresh: list[Node] = []
    while len(fresh) < number:
        name = f"new-{len(fresh) + 1}"
        while name in case.problem.nodes:
            name += "-more"
        fresh.append(replace(like, name=name, gpus=(0,), caps_w=like.caps_w[:1]))
    added = replace(view, nodes=(fresh[0],), places=(tuple((node.name, 0) for node in fresh),))
    return replace(case.on(lambda ground: ground.add_nodes(fresh, added)), more=tuple(fresh))


MOST_GPUS = 4096


LIMIT_FIELDS = {"gpus": "gpus", "price_per_hour": "pricePerHour"}
