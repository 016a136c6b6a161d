"""Names the limit that leaves a service unserved: first what no plan could change, then what other services use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf

import numpy as np

from solvers.planning.explain.applied import Offer, RelaxedCase, find_offer
from solvers.planning.explain.fleet import FleetCapacity, NodeKind
from solvers.planning.explain.ground import MOST_SHARED_GPUS, Ground
from solvers.planning.explain.impossible import able_kinds, impossible, least_slo_ms
from solvers.planning.explain.more_capacity import tenant_limit
from solvers.planning.explain.proposals import confirm
from solvers.planning.explain.relaxations import longest_slo_ms
from solvers.planning.explain.rounding import rounded_down
from solvers.planning.explain.seats import ENOUGH_SHARE
from solvers.planning.explain.worth import Worth, worth
from solvers.planning.fleet.commons import Commons
from solvers.planning.fleet.offers import read_offers
from solvers.planning.problem import Limit, Policy, Service

REFUSED = (
    "what other services leave has room for its whole rate, but a plan that only adds it breaks a rule; "
    "the next search, which may move others, may serve it"
)
LIMITED = "the limit of"
LIMITED_BY = {  # by the source of a limit
    "declared": LIMITED,
    "share": "GPUs are short, and what guarantees leave of them for",
    "budget": "the budget is used up of",
}


@dataclass(frozen=True, slots=True)
class UnservedReason:
    """The reason in words, and the cost of serving it where that is possible without a change."""

    words: str
    worth: Worth | None = None


@dataclass(frozen=True, slots=True)
class Lift:
    """A limit in words, and a function that removes it from a case."""

    words: str
    without: Callable[[RelaxedCase], RelaxedCase]


def reason(case: RelaxedCase, fleet: FleetCapacity) -> UnservedReason:
    """Finds why the service is not served whole, given what other services leave of each limit."""
    service = case.terms.service
    able = able_kinds(fleet, service)
    own = impossible(fleet, service, able)
    if own:
        least_ms = needed_slo_ms(case, fleet) if "its SLO" in own else None
        return UnservedReason(f"{own}; its rate needs {least_ms:.10g} ms even alone on this fleet" if least_ms else own)
    if service.priority * case.terms.policy.unserved_price <= 0:
        offered = find_offer(case)
        known = worth(case, offered) if _is_whole(case, offered) else None
        return UnservedReason(_free(case, known), known)
    return _crowded(case, fleet, able)


def needed_slo_ms(case: RelaxedCase, fleet: FleetCapacity) -> float | None:
    """Returns the shortest SLO, to four digits, at which its rate can be served; None if its own SLO is long enough."""
    least_ms = least_slo_ms(fleet, case.terms.service, longest_slo_ms(case))
    return rounded_down(least_ms) if least_ms and least_ms > case.terms.service.slo_ms else None


def short(fleet: FleetCapacity, service: Service, commons: Commons) -> str:
    """Gives the reason that needs no look at what other services leave."""
    policy = fleet.problem.policy
    able = able_kinds(fleet, service)
    own = impossible(fleet, service, able)
    if own:
        return own
    if policy.unserved_price <= 0:
        return "unservedPrice is 0, so leaving it out costs nothing"
    gpus, free = sum(kind.gpus for kind in able), sum(kind.idle for kind in able)
    if not free:
        return f"all {gpus} GPUs that may run it are in use, and the plan found no room for it next to other services"
    words = f"{free} of {gpus} GPUs that may run it are empty; why it cannot use them was not examined"
    limit = fleet.problem.limits.get(service.tenant)
    may = [_limit_words(commons, service.tenant, limit)] if limit else []
    may += [_budget_words(commons, policy)] if policy.power_budget_w is not None else []
    return f"{words}; the cause may be {', or '.join(may)}" if may else words


def _free(case: RelaxedCase, known: Worth | None) -> str:
    words = f"unservedPrice is {case.terms.policy.unserved_price:g}, so leaving it out costs nothing"
    return f"{words}; serving it would add {known.adds:.4g} an hour" if known else words


def _crowded(case: RelaxedCase, fleet: FleetCapacity, able: Sequence[NodeKind]) -> UnservedReason:
    """Finds the limits without which more of it could be served; otherwise the fleet is full or too small."""
    service, offered = case.terms.service, find_offer(case)
    if _is_whole(case, offered):
        known = worth(case, offered)
        if known and not known.is_worth_it:
            words = f"serving it would cost {known.adds:.4g} an hour more, but leaving it out costs only"
            return UnservedReason(f"{words} {known.saves:.4g} (by unservedPrice and priority): not worth it", known)
        if known:
            words = f"there is room for it next to other services, for {known.adds:.4g} an hour more"
            return UnservedReason(f"{words}, but this search did not find it: a longer search may serve it", known)
    so_far = max(offered.rate_per_second, sum(instance.rate_per_second for instance in case.own))
    lifts = _lifts(case)
    most, needed = _needed(case, lifts, so_far * (1 + 1e-6))
    if not needed:
        has_room = so_far >= service.rate_per_second * ENOUGH_SHARE
        return UnservedReason(REFUSED if has_room else _full(case, fleet, able, so_far))
    words = "; and ".join(lift.words for lift in needed)
    if most >= service.rate_per_second * ENOUGH_SHARE:
        raised = tenant_limit(case, inf) if len(needed) == 1 and needed[0].words.startswith(LIMITED) else None
        return UnservedReason(f"{words}; {raised.words} would be enough" if raised and confirm(raised) else words)
    return UnservedReason(f"{words}; without this limit, {_carries(case, most)}")


def _needed(case: RelaxedCase, lifts: Sequence[Lift], so_far: float) -> tuple[float, list[Lift]]:
    """Returns the limit whose removal serves most or, if none helps alone, the limits that must go together."""

    def carried(some: Sequence[Lift]) -> float:
        return find_offer(reduce(lambda about, lift: lift.without(about), some, case)).rate_per_second

    each = [(carried([lift]), lift) for lift in lifts]
    most = max((rate for rate, _ in each), default=0.0)
    if most > so_far:
        return most, [next(lift for rate, lift in each if rate >= most * (1 - 1e-9))]
    most = carried(lifts) if len(lifts) > 1 else 0.0
    if not most > so_far:
        return so_far, []
    needed = list(lifts)
    for lift in lifts:
        fewer = [other for other in needed if other is not lift]
        if carried(fewer) > so_far:
            needed = fewer
    return carried(needed), needed


def _lifts(case: RelaxedCase) -> list[Lift]:
    """Lists the rules that may keep it off GPUs with room, each with the case without it."""
    service, policy, limit = case.terms
    problem = case.problem
    found: list[Lift] = []
    if limit and (limit.gpus is not None or limit.price_per_hour is not None):
        words = _limit_words(case.rooms.commons, service.tenant, limit)
        found.append(Lift(f"{words}, leaves no room for it", lambda about: about.under(limit=None)))
    if policy.power_budget_w is not None:
        words = f"{_budget_words(case.rooms.commons, policy)}, leaves no power for it"
        found.append(Lift(words, _change_policy(power_budget_w=None)))
    if any(
        profile.demand.cpu_cores or profile.demand.host_memory_gib
        for node in {node.gpu_type: node for node in problem.nodes.values()}.values()
        for profile in read_offers(problem).find_profiles(service, node)
    ):
        words = "the CPU cores of the nodes leave no room for it"
        found.append(Lift(words, _endless("cpu_cores")))
        words = "the host memory of the nodes leaves no room for it"
        found.append(Lift(words, _endless("host_memory_gib")))
    if any(node.caps_w for node in problem.nodes.values()):
        words = "capW of the nodes leaves no watts for it on GPUs with room"
        found.append(Lift(words, lambda about: about.on(Ground.lift_caps)))
    words = f"sameModelPerGpu {policy.same_model_per_gpu} keeps it off GPUs where its model runs"
    found.append(Lift(words, _change_policy(same_model_per_gpu=100_000)))
    words = f"clientsPerGpu {policy.clients_per_gpu} keeps it off GPUs with room"
    found.append(Lift(words, _change_policy(clients_per_gpu=100_000)))
    if service.is_dedicated:
        words = "it is dedicated, and too few of the GPUs that may run it are empty"
        found.append(Lift(words, lambda about: about.wishing(is_dedicated=False)))
    if service.gpu_types is not None:
        words = f"its gpuTypes, {', '.join(service.gpu_types)}, keep it off other GPUs with room"
        found.append(Lift(words, lambda about: about.wishing(gpu_types=None)))
    if service.min_instances > 1:
        words = f"too few GPUs have room for minInstances {service.min_instances}, each with half an even share"
        found.append(Lift(words, lambda about: about.wishing(min_instances=1)))
    return found


def _limit_words(commons: Commons, tenant: str, limit: Limit) -> str:
    gpus, price = commons.gpus_taken.get(tenant, 0.0), commons.price_taken.get(tenant, 0.0)
    limits = [] if limit.gpus is None else [f"{limit.gpus:.6g} GPUs ({gpus:.4g} taken)"]
    limits += [] if limit.price_per_hour is None else [f"{limit.price_per_hour:.6g} an hour ({price:.4g} taken)"]
    return f"{LIMITED_BY[limit.source]} tenant {tenant}, {' and '.join(limits)}"


def _budget_words(commons: Commons, policy: Policy) -> str:
    return f"powerBudgetW {policy.power_budget_w:.6g}, of which the plan draws {commons.drawn_w:.5g} W"


def _full(case: RelaxedCase, fleet: FleetCapacity, able: Sequence[NodeKind], carried: float) -> str:
    """Says that no GPU that may run it is empty, or that the empty GPUs are too few for its rate."""
    service = case.terms.service
    gpus, free = sum(kind.gpus for kind in able), sum(kind.idle for kind in able)
    if free:
        words = f"the fleet is too small for its rate: of {gpus} GPUs that may run it {free} are empty"
        return f"{words}, and {_carries(case, carried)}"
    unfit: dict[str, int] = {}
    for kind in fleet.kinds:
        if kind.idle and kind not in able:
            unfit[kind.node.gpu_type] = unfit.get(kind.node.gpu_type, 0) + kind.idle
    words = f"the fleet is full: all {gpus} GPUs that may run it are in use, and {_carries(case, carried)}"
    if not unfit:
        return words
    unusable = ", ".join(
        f"{count} of {name} ({_why_unfit(fleet, service, name)})" for name, count in sorted(unfit.items())
    )
    return f"{words}; empty but unusable for it: {unusable}"


def _why_unfit(fleet: FleetCapacity, service: Service, gpu_type: str) -> str:
    if service.gpu_types is not None and gpu_type not in service.gpu_types:
        return "not of its gpuTypes"
    if not any((service.model, variant, gpu_type) in fleet.problem.profiles for variant in service.variants):
        return "no profile"
    nodes = [kind.node for kind in fleet.kinds if kind.node.gpu_type == gpu_type]
    if not any(read_offers(fleet.problem).find_profiles(service, node) for node in nodes):
        return "template not offered, or own runtime not admitted"
    if any(node.caps_w for node in nodes):
        return "SLO, memory, capW or room on its node insufficient"
    return "SLO, memory, maxW or room on its node insufficient"


def _carries(case: RelaxedCase, carried: float) -> str:
    some = "what other services leave"
    if any(ground.is_partly_seen for ground in case.grounds):
        some = f"what other services leave on the {MOST_SHARED_GPUS} roomiest GPUs of each kind"
    return f"{some} carries {carried:.4g} of {case.terms.service.rate_per_second:.6g} requests a second"


def _is_whole(case: RelaxedCase, offered: Offer) -> bool:
    return offered.rate_per_second >= case.terms.service.rate_per_second * ENOUGH_SHARE


def _change_policy(**policy: object) -> Callable[[RelaxedCase], RelaxedCase]:
    def without(about: RelaxedCase) -> RelaxedCase:
        changed: Policy = replace(about.terms.policy, **policy)  # type: ignore[arg-type]
        return about.under(policy=changed)

    return without


def _endless(resource: str) -> Callable[[RelaxedCase], RelaxedCase]:
    """Returns a function that gives nodes as much of a resource as anything needs."""

    def lifted(ground: Ground) -> Ground:
        commons = ground.commons.copy()
        setattr(commons, resource, np.full_like(commons.cpu_cores, inf))
        return replace(ground, commons=commons)

    return lambda about: about.on(lifted)
