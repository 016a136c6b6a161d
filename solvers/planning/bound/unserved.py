"""Bounds the rate that any plan leaves unserved, whatever money costs: GPUs and energy are free, a request costs 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from solvers.planning.bound import rounds_of, why_not
from solvers.planning.bound.fleet import BoundFleet, fleet
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.tables import Tables


def bound_unserved(t: Tables, priorities: Sequence[int], work: int) -> Iterator[float | None]:
    """Yields for each priority what every valid plan leaves unserved of it and all above, at least, all by `work`.

    What a plan leaves of lower priorities costs nothing, so all GPUs may serve those that count. A sum with all above
    is no less than the bound of one priority by itself, which would let that one have the GPUs of all above.
    """
    if why_not(t) is not None:
        yield from [None] * len(priorities)
        return
    f = fleet(t)
    of = np.array([t.problem.services[name].priority for name in t.services])
    for number, priority in enumerate(priorities):
        _charge_for_requests(f, np.where(of >= priority, 1.0, 0.0))
        *_, found = rounds_of(f, work // (len(priorities) - number))
        work = max(0, work - found.work)
        yield max(0.0, found.bound)


def _charge_for_requests(f: BoundFleet, price: Floats) -> None:
    """Makes GPUs and energy free, and has each unserved request a second cost its price, however few there are."""
    f.tables = replace(f.tables, unserved_price=price)
    f.least_unserved, f.most_price, f.fixed = 0.0, price, np.zeros_like(f.fixed)
    for m in f.markets:
        m.share_price, m.energy = 0.0, np.zeros_like(m.energy)
        m.scale = float(price @ f.need) / max(float(f.count.sum()), 1.0)
