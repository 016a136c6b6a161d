"""The rules of the judge as constraints, one function each, under the judge's names."""

from __future__ import annotations

from itertools import groupby, permutations
from typing import Any

from solvers.crosscheck.variables import PARTS, UNCOUNTED, WHOLE_RATE, Slot, Variables, need, room
from solvers.planning.judge.tolerances import RATE_SHARE
from solvers.planning.problem import Place, Service


def sm_fits(v: Variables) -> None:
    """sum of SM% <= 100"""
    for place in v.is_used:
        v.model.add(sum(slot.sm_percent() for slot in v.on(place)) <= 100)


def memory_fits(v: Variables) -> None:
    """sum of memory <= the GPU's"""
    for place in v.is_used:
        held = [slot.total([need(shape.memory_gib) for shape in slot.shapes]) for slot in v.on(place)]
        v.model.add(sum(held) <= room(v.problem.type_of(place[0]).memory_gib))


def same_model_fits(v: Variables) -> None:
    """instances of one model <= sameModelPerGpu"""
    for place in v.is_used:
        for name in {slot.service.model for slot in v.on(place)}:
            alike = [slot.runs for slot in v.on(place) if slot.service.model == name]
            v.model.add(sum(alike) <= v.problem.policy.same_model_per_gpu)


def clients_fit(v: Variables) -> None:
    """instances <= clientsPerGpu"""
    for place in v.is_used:
        v.model.add(sum(slot.runs for slot in v.on(place)) <= v.problem.policy.clients_per_gpu)


def keep_dedicated_alone(v: Variables) -> None:
    """a dedicated service there => no other service"""
    for place in v.is_used:
        for slot in v.on(place):
            for other in v.on(place) if slot.service.is_dedicated else ():
                if other.service.name != slot.service.name:
                    v.model.add_bool_or([slot.runs.negated(), other.runs.negated()])


def tenants_apart(v: Variables) -> None:
    """an own runtime there => no service of another tenant, unless shareAcrossTenants"""
    if v.problem.policy.share_across_tenants:
        return
    own = {(model, variant.name) for model, known in v.problem.models.items() for variant in known if variant.is_own}
    for place in v.is_used:
        for slot in v.on(place):
            for shape, is_chosen in zip(slot.shapes, slot.is_chosen, strict=True):
                for other in v.on(place) if (slot.service.model, shape.variant) in own else ():
                    if other.service.tenant != slot.service.tenant:
                        v.model.add_bool_or([is_chosen.negated(), other.runs.negated()])


def clocks_agree(v: Variables) -> None:
    """all instances of a GPU state one clock"""
    for place in v.is_used:
        clocks = {shape.clock_mhz for slot in v.on(place) for shape in slot.shapes}
        if len(clocks) < 2:
            continue
        chosen = {clock: v.model.new_bool_var("") for clock in sorted(clocks)}
        v.model.add_exactly_one(chosen.values())
        for slot in v.on(place):
            for shape, is_chosen in zip(slot.shapes, slot.is_chosen, strict=True):
                v.model.add_implication(is_chosen, chosen[shape.clock_mhz])


def watts_fit(v: Variables) -> None:
    """idle + sum of busy watts <= the most"""
    for place in v.is_used:
        kind = v.problem.type_at(place)
        drawn = [slot.total([need(shape.busy_w) for shape in slot.shapes]) for slot in v.on(place)]
        v.model.add(sum(drawn) <= max(0, room(kind.max_w - kind.idle_w)))


def cpu_fits(v: Variables) -> None:
    """sum of CPU cores <= the node's"""
    for node in v.problem.nodes.values():
        taken = [slot.total([need(shape.demand.cpu_cores) for shape in slot.shapes]) for slot in v.on_node(node.name)]
        v.model.add(sum(taken) <= room(node.cpu_cores))


def host_memory_fits(v: Variables) -> None:
    """sum of host memory <= the node's"""
    for node in v.problem.nodes.values():
        slots = v.on_node(node.name)
        taken = [slot.total([need(shape.demand.host_memory_gib) for shape in slot.shapes]) for slot in slots]
        v.model.add(sum(taken) <= room(node.host_memory_gib))


def rates_add_up(v: Variables) -> None:
    """sum of the rates + unserved = the rate; less than 1e-5 of it is not counted"""
    for name in v.problem.services:
        carried = sum(slot.rate for slot in v.of_service(name))
        v.model.add(carried + v.unserved[name] + v.uncounted[name] >= WHOLE_RATE)
        v.model.add(carried <= WHOLE_RATE + UNCOUNTED)


def min_instances_run(v: Variables) -> None:
    """any instance => at least minInstances"""
    for name, service in v.problem.services.items():
        slots = v.of_service(name)
        for slot in slots:
            v.model.add_implication(slot.runs, v.runs_at_all[name])
        v.model.add(sum(slot.runs for slot in slots) >= service.min_instances * v.runs_at_all[name])


def largest_apart_and_carry(v: Variables) -> None:
    """the minInstances largest are apart, and each carries at least half an even share

    `largest_apart` and `largest_carry` of the judge speak of the same instances: no other one carries more.
    """
    for name, service in v.problem.services.items():
        if service.min_instances < 2:
            continue
        slots = v.of_service(name)
        is_large = [v.model.new_bool_var("") for _ in slots]
        v.model.add(sum(is_large) == service.min_instances * v.runs_at_all[name])
        for slot, large in zip(slots, is_large, strict=True):
            v.model.add_implication(large, slot.runs)
        pairs = list(zip(slots, is_large, strict=True))
        for (slot, large), (other, other_large) in permutations(pairs, 2):
            v.model.add(slot.rate >= other.rate - WHOLE_RATE * (1 - large) - WHOLE_RATE * other_large)
        _apart(v, service, pairs)
        _carry(v, service, pairs)


def _apart(v: Variables, service: Service, pairs: list[tuple[Slot, Any]]) -> None:
    def where(pair: tuple[Slot, Any]) -> str:
        slot, spread = pair[0], service.availability.spread
        if spread == "region":
            return slot.node.region
        return slot.node.name if spread == "node" else f"{slot.place}"

    for _, together in groupby(sorted(pairs, key=where), key=where):
        v.model.add(sum(large for _, large in together) <= 1)


def _carry(v: Variables, service: Service, pairs: list[tuple[Slot, Any]]) -> None:
    total = sum(slot.rate for slot, _ in pairs)
    numbers = {number: v.model.new_bool_var("") for number in range(len(pairs) + 1)}
    v.model.add_exactly_one(numbers.values())
    v.model.add(sum(slot.runs for slot, _ in pairs) == sum(number * is_it for number, is_it in numbers.items()))
    for slot, large in pairs:
        for number, is_it in numbers.items():
            if number >= service.min_instances:
                least = total - 2 * WHOLE_RATE * (2 - large - is_it)
                v.model.add(2 * number * slot.rate >= least)


def survives_a_node(v: Variables) -> None:
    """surviveNodes 1 => without any node on which it runs the others carry all"""
    for name, service in v.problem.services.items():
        if not service.availability.survive_nodes:
            continue
        slots = v.of_service(name)
        served = sum(slot.rate for slot in slots)
        for node in {slot.node.name for slot in slots}:
            runs_there = v.model.new_bool_var("")
            for slot in slots:
                if slot.node.name == node:
                    v.model.add_implication(slot.runs, runs_there)
            left = sum(slot.surviving for slot in slots if slot.node.name != node)
            v.model.add(left + len(slots) >= served - 2 * WHOLE_RATE * (1 - runs_there))


def spot_within_share(v: Variables) -> None:
    """rates on spot nodes <= maxSpotShare x all"""
    for name, service in v.problem.services.items():
        share = service.availability.max_spot_share
        if share >= 1:
            continue
        slots = v.of_service(name)
        on_spot = sum(slot.rate for slot in slots if slot.node.purchase == "spot")
        allowed = room(share + RATE_SHARE)
        v.model.add(PARTS * on_spot <= allowed * sum(slot.rate for slot in slots))


def mean_accuracy_kept(v: Variables) -> None:
    """sum of rate x accuracy of its variant >= meanAccuracy x sum of the rates"""
    for name, service in v.problem.services.items():
        known = {variant.name: variant.accuracy for variant in v.problem.models[service.model]}
        reached, slots = [], v.of_service(name)
        for slot in slots if service.mean_accuracy else ():
            by_variant = {shape.variant: v.model.new_int_var(0, WHOLE_RATE, "") for shape in slot.shapes}
            for variant, rate in by_variant.items():
                v.model.add(rate <= slot.total([WHOLE_RATE * (shape.variant == variant) for shape in slot.shapes]))
                reached.append(room(known[variant]) * rate)
            v.model.add(sum(by_variant.values()) == slot.rate)
        if reached:
            v.model.add(sum(reached) >= need(service.mean_accuracy) * sum(slot.rate for slot in slots))


def keep_within_limits(v: Variables) -> None:
    """a tenant's share of GPUs <= limit.gpus, and their price <= limit.pricePerHour"""
    for tenant, limit in v.problem.limits.items():
        # Each share is added up twice, and a sum of this library must not be shared.
        shares = [(place, name) for place in v.is_used for name in _services_of(v, tenant)]
        if limit.gpus is not None:
            v.model.add(PARTS * sum(_share_taken(v, *share) for share in shares) <= room(100 * limit.gpus))
        if limit.price_per_hour is not None:
            prices = [need(v.problem.nodes[place[0]].price_per_hour / 100) for place, _ in shares]
            spent = [price * _share_taken(v, *share) for price, share in zip(prices, shares, strict=True)]
            v.model.add(sum(spent) <= room(limit.price_per_hour))


def _services_of(v: Variables, tenant: str) -> list[str]:
    return [name for name, service in v.problem.services.items() if service.tenant == tenant]


def _share_taken(v: Variables, place: Place, name: str) -> Any:
    """Returns the SM% that a service takes of a GPU; a dedicated one takes all."""
    slots = [slot for slot in v.on(place) if slot.service.name == name]
    if not v.problem.services[name].is_dedicated:
        return sum(slot.sm_percent() for slot in slots)
    is_there = v.model.new_bool_var("")
    for slot in slots:
        v.model.add_implication(slot.runs, is_there)
    return 100 * is_there


RULES = (
    sm_fits,
    memory_fits,
    same_model_fits,
    clients_fit,
    keep_dedicated_alone,
    tenants_apart,
    clocks_agree,
    watts_fit,
    cpu_fits,
    host_memory_fits,
    rates_add_up,
    min_instances_run,
    largest_apart_and_carry,
    survives_a_node,
    spot_within_share,
    mean_accuracy_kept,
    keep_within_limits,
)
