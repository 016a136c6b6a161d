"""Finds the GPU types that the declared mix overbooks; requests that run on any type should leave them alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from solvers.baselines.online.workload import GPU_MILLI, Host, Workload

ROOM = 1.0001  # a little more than each type has, so that a type that demand just fills is not scarce


def scarcity_by_type(hosts: Sequence[Host], workload: Workload) -> dict[str, float]:
    """Returns the price of a milli of each type, 0..1: by how much the demand that can be served would grow with it.

    The mix is scaled to the capacity of the whole fleet, and divided among types by a linear program; the prices are
    the duals of what each type has."""
    capacity: Counter[str] = Counter()
    for host in hosts:
        capacity[host.gpu_type] += host.gpus * GPU_MILLI
    types = sorted(capacity)
    demand: Counter[tuple[str, ...]] = Counter()
    for request, count in workload.counts:
        if request.gpus:
            demand[request.gpu_types or tuple(types)] += count * request.total_gpu_milli  # type: ignore[assignment]
    flows = [(wanted, name) for wanted in demand for name in types if name in wanted]
    total, booked = sum(capacity.values()), sum(demand.values())
    if not (flows and booked and total):
        return dict.fromkeys(types, 0.0)
    rows = [[flow[0] == wanted for flow in flows] for wanted in demand]
    rows += [[flow[1] == name for flow in flows] for name in types]
    most = [amount / booked for amount in demand.values()]
    most += [ROOM * capacity[name] / total for name in types]
    found = linprog(np.full(len(flows), -1.0), A_ub=np.array(rows, dtype=np.float64), b_ub=np.array(most))
    return dict(zip(types, (-found.ineqlin.marginals[len(demand) :]).tolist(), strict=True))
