"""Small fleets: the best whole choice among all patterns that dives came to, by branch and bound."""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from solvers.planning.workshop import Column, Workshop

MOST_SERVICES = 120
MOST_COLUMNS = 2_500
NODES = 400
BETTER = 1e-6


def recombine(shop: Workshop, columns: Sequence[Column], best: Sequence[Column]) -> list[Column] | None:
    """A cheaper choice than `best`, which serves everything; None where none is found within the nodes."""
    services, pools = len(shop.t.services), len(shop.counts)
    known = {column.key: column for column in [*columns, *best]}
    choice = list(known.values())
    place = {key: index for index, key in enumerate(known)}
    begin = np.zeros(len(choice))
    for column in best:
        begin[place[column.key]] += 1
    lp = highspy.Highs()
    # HiGHS 1.14's presolve cuts off optima of some integer programs.
    for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("mip_max_nodes", NODES)):
        lp.setOptionValue(option, value)
    rows, infinite = services + pools, highspy.kHighsInf
    lower = np.concatenate([np.ones(services), np.full(pools, -infinite)])
    upper = np.concatenate([np.full(services, infinite), shop.counts])
    none = np.zeros(0, dtype=np.int32)
    lp.addRows(rows, lower, upper, 0, np.zeros(rows, dtype=np.int32), none, np.zeros(0))
    starts: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    for column in choice:
        carried: dict[int, float] = {}
        for offer, cap in zip(column.offers.tolist(), column.caps.tolist(), strict=True):
            service = int(shop.t.offer_service[offer])
            carried[service] = carried.get(service, 0.0) + cap / float(shop.t.rate[service])
        starts.append(len(indices))
        indices += [*carried, services + column.pool]
        values += [*(min(part, 1.0) for part in carried.values()), 1.0]
    count = len(choice)
    cost = np.array([column.cost for column in choice])
    lp.addCols(
        count, cost, np.zeros(count), np.full(count, infinite), len(indices), np.array(starts, dtype=np.int32),
        np.array(indices, dtype=np.int32), np.array(values),
    )  # fmt: skip
    whole = np.array([highspy.HighsVarType.kInteger] * count)
    lp.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
    solution = highspy.HighsSolution()
    solution.col_value = begin.tolist()
    lp.setSolution(solution)
    lp.run()
    found = np.round(np.array(lp.getSolution().col_value))
    if len(found) != count or not float(cost @ found) < float(cost @ begin) - BETTER:
        return None
    return [column for column, times in zip(choice, found, strict=True) for _ in range(int(times))]


def laid_out(shop: Workshop, columns: Sequence[Column]) -> bool:
    """Put exactly these patterns on the board; whether all have found a node with room."""
    shop.clear_all()
    placed = all(shop.place(column) for column in columns)
    shop.restack()
    return placed
