"""Judges actions: their cost and the constraints they break, in plain loops. It shares no code with the solvers."""

from __future__ import annotations

from solvers.hetsev.scaling.problem import Actions, ScalingProblem

TOLERANCE = 1e-6  # relative


def unserved(problem: ScalingProblem, actions: Actions) -> float:
    """Returns the unserved part of the arrivals: HetSev, constraint (1), as a number instead of a verdict."""
    served = 0.0
    for kind in problem.types:
        if kind.exec_ms <= problem.promise.rt_max_ms:
            served += kind.throughput_per_second * (kind.running + actions.get(kind.name, 0))
    short = problem.arrivals_per_second - served
    return short if short > TOLERANCE * problem.arrivals_per_second else 0.0


def cost(problem: ScalingProblem, actions: Actions) -> float:
    """HetSev's objective, sum C (X + lambda O max(X, 0)), plus the price of unserved requests."""
    total = 0.0
    for kind in problem.types:
        change = actions.get(kind.name, 0)
        total += kind.cost_per_hour * change
        if change > 0:
            total += kind.cost_per_hour * problem.unpredictability * kind.launch_seconds * change
    return total + problem.unserved_price * unserved(problem, actions)


def violations(problem: ScalingProblem, actions: Actions) -> list[str]:
    """Returns a sentence for every broken constraint."""
    known = {kind.name for kind in problem.types}
    found = [f"{name} is not an instance type of this service" for name in sorted(actions) if name not in known]
    for kind in problem.types:
        change = actions.get(kind.name, 0)
        if kind.running + change < 0:  # (3)
            found.append(f"{-change} instances of {kind.name} are stopped; only {kind.running} run")
        if change > 0 and kind.exec_ms > problem.promise.rt_max_ms:  # (4)
            found.append(f"{kind.name} takes {kind.exec_ms:g} ms; at most {problem.promise.rt_max_ms:g} ms are allowed")
        if change > 0 and kind.most is not None and kind.running + change > kind.most:
            found.append(f"{kind.running + change} instances of {kind.name}; its GPUs have room for {kind.most}")
    return found
