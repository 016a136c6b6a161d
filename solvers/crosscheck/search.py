"""Solves the model again and again, each time with the surroundings in which its last answer carried too much."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, fsum, inf
from typing import TYPE_CHECKING, Any

from solvers import latency
from solvers.crosscheck.carrying import Carrying, idle_pressure, kind_of, parts_of
from solvers.crosscheck.rules import RULES
from solvers.crosscheck.scope import refuse_large
from solvers.crosscheck.shapes import CheckedShape, most_carried
from solvers.crosscheck.variables import MONEY, UNCOUNTED, WHOLE_RATE, Slot, Variables, load_cp_model, need
from solvers.planning.judge import judge
from solvers.planning.judge.billing import gpu_price, is_billed_whole, whole_price
from solvers.planning.plan import Plan, Unplaced, list_unserved
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver

TOLERANCE_SHARE = 1e-5  # of a cost: a plan this much over the bound is the cheapest
JUST_BELOW = 1 - 1e-9
OFF_THE_EDGE_SHARE = 2e-6  # of a rate: less than is counted as unserved, more than rounding
MOST_ROUNDS = 200
WORK = 60.0  # of CP-SAT's deterministic seconds, over all rounds
MOST_CONFLICTS = 100_000  # of a round
SEED = 1


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """A true bound on the cost of every plan, and the cheapest plan that the judge accepted, if any."""

    bound: float
    cost: float
    plan: Plan | None
    rounds: int
    work: float

    @property
    def is_proved(self) -> bool:
        """Returns whether no plan costs less than the one found."""
        return self.cost <= self.bound + TOLERANCE_SHARE * max(1.0, self.bound)

    def is_above(self, cost: float) -> bool:
        """Returns whether a plan of this cost contradicts the bound."""
        return cost < self.bound - TOLERANCE_SHARE * max(1.0, self.bound)


Chosen = list[tuple[Slot, CheckedShape, int]]  # with its rate in parts


def cross_check(problem: Problem, work: float = WORK) -> CrossCheck:
    """Returns the cheapest plan and its proof; without a proof where the work was not enough. May raise TooLarge."""
    cp_model = load_cp_model()
    refuse_large(problem)
    v = Variables.of(problem)
    for rule in RULES:
        rule(v)
    minimize_cost(v)
    carrying = Carrying(v)
    carrying.begin()
    best = CrossCheck(0.0, inf, None, 0, 0.0)
    for rounds in range(1, MOST_ROUNDS + 1):
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1  # one worker and deterministic time give the same answer on any machine
        solver.parameters.random_seed = SEED
        solver.parameters.linearization_level = 2  # without it, bounds on shares rise one conflict at a time
        solver.parameters.max_number_of_conflicts = MOST_CONFLICTS
        solver.parameters.max_deterministic_time = max(work - best.work, 1e-3)
        status = solver.solve(v.model)
        spent = best.work + solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return CrossCheck(best.bound, best.cost, best.plan, rounds, spent)
        chosen = _read_chosen(v, solver)
        plan, cost = _judge(problem, chosen)
        free = UNCOUNTED * len(problem.services)  # counted by the model alone
        bound = max(best.bound, (solver.best_objective_bound - free) / MONEY)
        cost, plan = (cost, plan) if cost < best.cost else (best.cost, best.plan)
        best = CrossCheck(bound, cost, plan, rounds, spent)
        if best.is_proved or status != cp_model.OPTIMAL or not _learn(problem, carrying, chosen):
            break
    return best


def _read_chosen(v: Variables, solver: CpSolver) -> Chosen:
    return [
        (slot, shape, solver.value(slot.rate))
        for slot in v.slots
        for shape, is_chosen in zip(slot.shapes, slot.is_chosen, strict=True)
        if solver.boolean_value(is_chosen)
    ]


def _list_neighbours(chosen: Chosen, slot: Slot) -> list[CheckedShape]:
    return [shape for other, shape, _ in chosen if other.place == slot.place and other is not slot]


def _count_unused(chosen: Chosen, slot: Slot) -> int:
    return 100 - sum(shape.sm_percent for other, shape, _ in chosen if other.place == slot.place)


def _learn(problem: Problem, carrying: Carrying, chosen: Chosen) -> bool:
    """Teaches the model the surroundings in which an instance carries too much; False if there are none."""
    is_new = False
    for slot, shape, rate in chosen:
        true = _most(problem, chosen, slot, shape)
        is_checked_elsewhere = slot.service.availability.survive_nodes > 0
        if rate > parts_of(slot.service, true) or is_checked_elsewhere:
            beside = sum(need(other.pressure) for other in _list_neighbours(chosen, slot))
            unused = _count_unused(chosen, slot) if problem.policy.pricing == "share" else 0
            is_new |= carrying.learn(kind_of(slot), (beside, unused))
    return is_new


def _most(problem: Problem, chosen: Chosen, slot: Slot, shape: CheckedShape) -> float:
    beside = fsum(other.pressure for other in _list_neighbours(chosen, slot))
    idle = idle_pressure(problem.policy, _count_unused(chosen, slot))
    return most_carried(problem.policy, slot.service, shape, beside, idle)


def _judge(problem: Problem, chosen: Chosen) -> tuple[Plan | None, float]:
    """Returns the answer as a plan, with what its instances really carry, and its judged cost; None if it is wrong."""
    lines = [
        _line(problem, chosen, slot, shape, rate, number)
        for number, ((slot, shape, _), rate) in enumerate(zip(chosen, _rates(problem, chosen), strict=True))
        if rate > 0
    ]
    waiting = tuple(Unplaced(name, "jobs are left out of the exact check") for name in sorted(problem.jobs))
    plan = Plan(tuple(lines), (), list_unserved(problem, lines), waiting)
    verdict = judge(problem, plan, simulate=False, keeps=keep)
    return (plan, verdict.cost.total) if verdict.is_right else (None, inf)


def _rates(problem: Problem, chosen: Chosen) -> list[float]:
    """Returns the rate of each: no more than it carries, so that rounding breaks no rule of its service."""
    rates = [
        min(parts / WHOLE_RATE * slot.service.rate_per_second, JUST_BELOW * _most(problem, chosen, slot, shape))
        for slot, shape, parts in chosen
    ]
    for at, (slot, _, _) in enumerate(chosen):
        if slot.node.purchase == "spot" and slot.service.availability.max_spot_share < 1:
            rates[at] *= 1 - OFF_THE_EDGE_SHARE
    for name, service in problem.services.items():
        own = [at for at, (slot, _, _) in enumerate(chosen) if slot.service.name == name]
        least = service.min_instances
        if least > 1 and len(own) >= least:  # largest_carry: an even share may be too much by a rounding
            largest = sorted(own, key=lambda at: rates[at], reverse=True)
            most = JUST_BELOW * 2 * len(own) * rates[largest[least - 1]]
            rates[largest[0]] -= max(0.0, fsum(rates[at] for at in own) - most)
    return rates


def _line(
    problem: Problem, chosen: Chosen, slot: Slot, shape: CheckedShape, rate: float, number: int
) -> Instance:  # fmt: skip
    service, policy = slot.service, problem.policy
    exec_ms = shape.exec_ms(
        fsum(other.pressure for other in _list_neighbours(chosen, slot)),
        idle_pressure(policy, _count_unused(chosen, slot)),
    )
    judged_ms = exec_ms * (1 + policy.exec_margin)
    timeout = latency.timeout_for(
        shape.batch, judged_ms, service.slo_ms, service.percentile, rate, service.variation
    )  # fmt: skip
    return Instance(
        f"x{number}", service.name, *slot.place, shape.variant, shape.batch, timeout or 0.0, shape.sm_percent,
        shape.memory_gib, shape.clock_mhz, rate, exec_ms,
    )  # fmt: skip


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
