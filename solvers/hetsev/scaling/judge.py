"""What actions cost and which constraint they break, in plain loops. It shares nothing with the solvers."""

from __future__ import annotations

from solvers.hetsev.scaling.problem import Actions, ScalingProblem

TOLERANCE = 1e-6  # relative


def unserved(problem: ScalingProblem, actions: Actions) -> float:
    """What of the arrivals nothing carries: HetSev, constraint (1), as a number instead of a verdict."""
    carried = 0.0
    for kind in problem.types:
        if kind.exec_ms <= problem.promise.rt_max_ms:
            carried += kind.throughput_per_second * (kind.running + actions.get(kind.name, 0))
    short = problem.arrivals_per_second - carried
    return short if short > TOLERANCE * problem.arrivals_per_second else 0.0


def cost(problem: ScalingProblem, actions: Actions) -> float:
    """HetSev's objective, sum C (X + lambda O max(X, 0)), and the price of what is unserved."""
    total = 0.0
    for kind in problem.types:
        change = actions.get(kind.name, 0)
        total += kind.cost_per_hour * change
        if change > 0:
            total += kind.cost_per_hour * problem.unpredictability * kind.launch_seconds * change
    return total + problem.unserved_price * unserved(problem, actions)


def violations(problem: ScalingProblem, actions: Actions) -> list[str]:
    """Every constraint that does not hold, in words."""
    known = {kind.name for kind in problem.types}
    found = [f"{name} is no instance type of this service" for name in sorted(actions) if name not in known]
    for kind in problem.types:
        change = actions.get(kind.name, 0)
        if kind.running + change < 0:  # (3)
            found.append(f"{-change} instances of {kind.name} are stopped, {kind.running} run")
        if change > 0 and kind.exec_ms > problem.promise.rt_max_ms:  # (4)
            found.append(f"{kind.name} takes {kind.exec_ms:g} ms; {problem.promise.rt_max_ms:g} ms are promised")
        if change > 0 and kind.most is not None and kind.running + change > kind.most:
            found.append(f"{kind.running + change} instances of {kind.name}; its GPUs hold {kind.most}")
    for resource in ("cpu_cores", "host_memory_gib", "gpu_memory_gib"):  # (2)
        taken = 0.0
        before = 0.0
        for kind in problem.types:
            taken += getattr(kind, resource) * (kind.running + actions.get(kind.name, 0))
            before += getattr(kind, resource) * kind.running
        there = getattr(problem.totals, resource)
        if taken > there * (1 + TOLERANCE) and taken > before:
            found.append(f"{resource}: {taken:g} are taken, there are {there:g}")
    return found
