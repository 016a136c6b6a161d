"""The compiled loop that tries every split of a GPU's SMs among its models, each with the best batches in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SLACK = 1e-9  # relative: the rounding of floating-point sums


@njit("float64(float64[:, ::1], int64, float64)", inner=True)
def usable_share(curve: Floats, points: int, at_ms: float) -> float:
    """Returns the share of a throughput that keeps the SLO, linear between the points of (exec ms, share)."""
    if at_ms <= curve[0, 0]:
        return float(curve[0, 1])
    for right in range(1, points):
        if at_ms < curve[right, 0]:
            slope = (curve[right, 1] - curve[right - 1, 1]) / (curve[right, 0] - curve[right - 1, 0])
            return float(slope * (at_ms - curve[right - 1, 0]) + curve[right - 1, 1])
    return float(curve[points - 1, 1])


@njit(
    "float64(int64[:, ::1], int64[::1], float64[::1], float64[:, :, ::1], float64[:, ::1], float64[:, ::1],"
    " float64[:, :, :, ::1], int64[:, ::1], float64[:, ::1], float64[:, ::1], float64, float64, int64[::1])",
    makes_arrays=True,
)
def fill(
    ways: Ints, members: Ints, batches: Floats, run_ms: Floats, most_ms: Floats, memory_gib: Floats, curves: Floats,
    points: Ints, uses: Floats, terms: Floats, gpu_gib: float, penalty: float, chosen: Ints,
) -> float:  # fmt: skip
    """Returns the most worth of a GPU with these models; `chosen` receives the split and the batches of each.

    Tables have a row for each model, and columns for batches and then SM steps; `terms` are its sensitivity,
    the worth of a request a second and its rate. It returns -inf where the models cannot share the GPU.
    """
    count, columns = members.shape[0], batches.shape[0]
    worth = np.full((ways.shape[0], count, columns), -np.inf)
    most = np.zeros(ways.shape[0])
    for way in range(ways.shape[0]):
        together = 0.0
        for i in range(count):
            together += float(uses[members[i], ways[way, i]])
        for i in range(count):
            model, step, best = members[i], ways[way, i], -np.inf
            others = 1.0 + terms[model, 0] * (together - uses[model, step])
            for b in range(columns):
                alone = run_ms[model, b, step]
                if not alone < np.inf:
                    continue
                exec_ms = alone * others
                if exec_ms > most_ms[model, b] * (1.0 + SLACK):
                    continue
                per_second = batches[b] / exec_ms * 1000.0
                served = per_second * usable_share(curves[model, b], points[model, b], exec_ms)
                value = terms[model, 1] * per_second - penalty * max(0.0, 1.0 - served / terms[model, 2])
                worth[way, i, b] = value
                best = max(best, value)
            most[way] += best
    found = -np.inf
    order = np.zeros((count, columns), np.int64)
    options = np.zeros(count, np.int64)
    possible, least = np.zeros(count + 1), np.zeros(count + 1)
    at, picks = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    reached, free = np.zeros(count + 1), np.zeros(count + 1)
    while True:
        way = int(most.argmax())
        if most[way] <= found or most[way] == -np.inf:
            return found  # no later split can be better, even if its batches fit into memory
        # The batches of most worth that fit into memory (1b), depth first with a bound on the worth.
        for back in range(count):
            i = count - 1 - back
            model, n, least_gib = members[i], 0, np.inf
            for b in range(columns):
                if worth[way, i, b] == -np.inf:
                    continue
                k = n
                while k > 0 and (
                    worth[way, i, order[i, k - 1]] < worth[way, i, b]
                    or (
                        worth[way, i, order[i, k - 1]] == worth[way, i, b]
                        and memory_gib[model, order[i, k - 1]] > memory_gib[model, b]
                    )
                ):
                    order[i, k] = order[i, k - 1]
                    k -= 1
                order[i, k] = b
                n += 1
                least_gib = min(least_gib, memory_gib[model, b])
            options[i] = n
            possible[i] = possible[i + 1] + worth[way, i, order[i, 0]]
            least[i] = least[i + 1] + least_gib
        best, depth = -np.inf, 0
        at[0], reached[0], free[0] = 0, 0.0, gpu_gib
        while depth >= 0:
            if at[depth] == 0 and best > -np.inf and reached[depth] + possible[depth] <= best:
                depth -= 1
                continue
            if depth == count:
                best = float(reached[count])
                if best > found:
                    found = best
                    for i in range(count):
                        chosen[i], chosen[count + i] = ways[way, i], picks[i]
                depth -= 1
                continue
            if at[depth] == options[depth]:
                depth -= 1
                continue
            b = order[depth, at[depth]]
            at[depth] += 1
            needed = memory_gib[members[depth], b]
            if needed + least[depth + 1] <= free[depth] + SLACK * gpu_gib:
                picks[depth] = b
                reached[depth + 1] = reached[depth] + worth[way, depth, b]
                free[depth + 1] = free[depth] - needed
                depth += 1
                at[depth] = 0
        most[way] = -np.inf
