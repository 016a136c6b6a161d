"""HetSev's heuristic: starts as many of the cheapest type as needed, and stops the dearest spare instance."""

from __future__ import annotations

import math

from solvers.hetsev.scaling.problem import ScalingProblem

EXACTLY = 1e-9  # relative: the rounding of floating-point sums


def capacity(problem: ScalingProblem, counts: dict[str, int]) -> float:
    """Returns the requests a second that all instances within the SLO can serve."""
    return sum(kind.throughput_per_second * counts[kind.name] for kind in problem.types if problem.keeps_promise(kind))


def out(problem: ScalingProblem, counts: dict[str, int], saturation: float) -> tuple[str, int] | None:
    """Returns the type, and the number of it, that brings the load under the saturation at the least cost.

    If no type has room for the number needed, returns the type whose room serves most; if none has room, None."""
    short = problem.arrivals_per_second / saturation - capacity(problem, counts)
    choices = []
    for kind in problem.types:
        if not problem.keeps_promise(kind):
            continue
        needed = max(1, math.ceil(short / kind.throughput_per_second * (1 - EXACTLY)))
        number = needed if kind.most is None else min(needed, kind.most - counts[kind.name])
        if number > 0:
            launch = problem.unpredictability * kind.launch_seconds
            price = kind.cost_per_hour * number * (1 + launch)
            missing = max(0.0, short - number * kind.throughput_per_second) if number < needed else 0.0
            choices.append((missing, price, kind.name, number))
    return min(choices)[2:] if choices else None


def dearest_removable(problem: ScalingProblem, counts: dict[str, int], saturation: float) -> str | None:
    """Returns the type of the dearest running instance that the load does not need to stay within the saturation."""
    served = capacity(problem, counts)
    candidates = []
    for kind in problem.types:
        if counts[kind.name] == 0:
            continue
        loss = kind.throughput_per_second if problem.keeps_promise(kind) else 0.0
        if (served - loss) * saturation * (1 + EXACTLY) >= problem.arrivals_per_second:
            candidates.append((-kind.cost_per_hour, kind.name))
    return min(candidates)[1] if candidates else None


def solve(problem: ScalingProblem, saturation: float = 1.0) -> dict[str, int]:
    """Scales out until the load is served or nothing fits; if it was served already, scales in while it can."""
    counts = {kind.name: kind.running for kind in problem.types}
    over = capacity(problem, counts) * saturation * (1 + EXACTLY) < problem.arrivals_per_second
    while over:
        choice = out(problem, counts, saturation)
        if choice is None:
            break
        counts[choice[0]] += choice[1]
        over = capacity(problem, counts) * saturation * (1 + EXACTLY) < problem.arrivals_per_second
    started = any(counts[kind.name] > kind.running for kind in problem.types)
    while not started and not over:  # no switching: new instances never replace running ones
        name = dearest_removable(problem, counts, saturation)
        if name is None:
            break
        counts[name] -= 1
    return {kind.name: counts[kind.name] - kind.running for kind in problem.types}
