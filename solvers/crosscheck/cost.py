"""The cost of a plan as the judge computes it, but for what `scope.left_out` names."""

from __future__ import annotations

from math import floor
from typing import Any

from solvers.crosscheck.variables import MONEY, WHOLE_RATE, Variables
from solvers.planning.judge.billing import gpu_price, is_billed_whole, whole_price

FINER = 1000  # the price of a part of a rate has so few digits that rounding it down would show


def money(amount: float) -> int:
    """Returns an amount in whole parts, rounded down."""
    return floor(amount * MONEY)


def minimize_cost(v: Variables) -> None:
    """GPUs that services run on, and unserved rates"""
    for place, is_used in v.is_used.items():
        for slot in v.on(place):
            v.model.add_implication(slot.runs, is_used)
        v.model.add_bool_or([is_used.negated(), *(slot.runs for slot in v.on(place))])
    leave_little = sum(v.uncounted.values())  # at next to no price: only where something depends on it
    v.model.minimize(sum([_resource(v), _idle_energy(v), _price_unserved(v), leave_little]))


def _resource(v: Variables) -> Any:
    paid: list[Any] = []
    for node in v.problem.nodes.values():
        used = [v.is_used[node.name, index] for index in node.gpus]
        if is_billed_whole(node, v.problem.policy):
            whole = v.model.new_bool_var("")
            for is_used in used:
                v.model.add_implication(is_used, whole)
            paid.append(money(whole_price(node) * v.problem.policy.money_weight) * whole)
        elif v.problem.policy.pricing == "share":
            paid += [_share(v, node.name, index) for index in node.gpus]
        else:
            paid += [money(gpu_price(node) * v.problem.policy.money_weight) * is_used for is_used in used]
    return sum(paid)


def _share(v: Variables, node: str, index: int) -> Any:
    """price x max(sum of SM% / 100, sum of memory / the GPU's), the whole price where a dedicated service runs"""
    price = gpu_price(v.problem.nodes[node]) * v.problem.policy.money_weight
    memory_gib = v.problem.type_of(node).memory_gib
    paid = v.model.new_int_var(0, money(price), "")
    slots = v.on((node, index))
    v.model.add(paid >= money(price / 100) * sum(slot.sm_percent() for slot in slots))
    held = [slot.total([money(price * shape.memory_gib / memory_gib) for shape in slot.shapes]) for slot in slots]
    v.model.add(paid >= sum(held) - len(slots))
    for slot in slots:
        if slot.service.is_dedicated:
            v.model.add(paid >= money(price) * slot.runs)
    return paid


def _idle_energy(v: Variables) -> Any:
    per_kwh = v.problem.policy.energy_price_per_kwh
    idle = {place: money(v.problem.type_of(place[0]).idle_w / 1000 * per_kwh) for place in v.is_used}
    return sum(idle[place] * is_used for place, is_used in v.is_used.items())


def _price_unserved(v: Variables) -> Any:
    """unservedPrice x priority / 100 x max(unserved rate, 1), where there is any"""
    policy, costs = v.problem.policy, []
    for name, service in v.problem.services.items():
        price = policy.unserved_price * service.priority / 100 * service.unserved_weight
        most = money(price * max(service.rate_per_second, 1.0))
        cost = v.model.new_int_var(0, most, "")
        v.model.add(cost >= money(price) * v.is_short[name])
        per_part = floor(price * service.rate_per_second / WHOLE_RATE * MONEY * FINER)
        v.model.add(FINER * cost >= per_part * v.unserved[name])
        costs.append(cost)
    return sum(costs)
