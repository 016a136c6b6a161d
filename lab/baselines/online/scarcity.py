"""Finds the GPU types that the declared mix overbooks; requests that run on any type should leave them alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog

from lab.baselines.online.workload import Workload

ROOM = 1.0001  # a little more than is free, so that a type that demand just fills is not scarce


def scarcity_by_type(free_milli: Mapping[str, float], workload: Workload) -> dict[str, float]:
    """Returns the price of a free milli of each type, 0..1: by how much one more would let the fleet serve.

    The mix is scaled to all that is free, and divided among types by a linear program; the prices are the duals of
    what is free of each type."""
    types = sorted(free_milli)
    demand: Counter[tuple[str, ...]] = Counter()
    for request, count in workload.counts:
        if request.gpus:
            demand[request.gpu_types or tuple(types)] += count * request.total_gpu_milli  # type: ignore[assignment]
    flows = [(wanted, name) for wanted in demand for name in types if name in wanted]
    total, asked = sum(free_milli.values()), sum(demand.values())
    if not (flows and asked and total):
        return dict.fromkeys(types, 0.0)
    rows = [[flow[0] == wanted for flow in flows] for wanted in demand]
    rows += [[flow[1] == name for flow in flows] for name in types]
    most = [amount / asked for amount in demand.values()]
    most += [ROOM * free_milli[name] / total for name in types]
    found = linprog(np.full(len(flows), -1.0), A_ub=np.array(rows, dtype=np.float64), b_ub=np.array(most))
    return dict(zip(types, (-found.ineqlin.marginals[len(demand) :]).tolist(), strict=True))
