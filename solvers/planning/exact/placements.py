"""A proved choice of patterns as what stands on each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.kernels import STAIRS, cap_of
from solvers.planning.exact.patterns import Patterns
from solvers.planning.search.tables import Floats, Tables

Code: TypeAlias = NDArray[np.int32]  # one pattern


@dataclass(frozen=True, slots=True)
class ExactResident:
    """An instance on a GPU, by the tables' numbers."""

    offer: int
    sm_percent: int
    batch: int  # index into the tables' batches
    rate_per_second: float


@dataclass(frozen=True, slots=True)
class ExactPlacements:
    """Who stands on one GPU."""

    pool: int
    index: int  # into the pool's GPUs
    clock_mhz: float
    residents: tuple[ExactResident, ...]


def exact_placements(t: Tables, space: Patterns, picked: Sequence[tuple[int, Code]]) -> tuple[ExactPlacements, ...]:
    """`picked`: the pool and pattern of each GPU. Residents share the need in proportion to what they could carry."""
    found: list[tuple[int, int, float, list[ExactResident]]] = []
    cover = np.zeros(len(t.services))
    taken: Counter[int] = Counter()
    for pool, pattern in picked:
        index = taken[pool]
        taken[pool] += 1
        codes = [int(code) for code in pattern if code >= 0]
        if not codes:
            continue
        of = space.options[space.site[pool]]
        clock = int(space.exact(pool, pattern[None, :])[1][0, 0])
        total = sum(float(of.pressure[code // STAIRS]) for code in codes)
        residents = []
        for code in codes:
            option, last = divmod(code, STAIRS)
            beside = max(total - float(of.pressure[option]), 0.0)
            rates = [cap_of(of, option, clock, stair, beside) for stair in range(last + 1)]
            if rates[-1] > 0:
                stair = rates.index(rates[-1])
                residents.append(
                    ExactResident(
                        int(of.offer[option]), int(of.sm[option]), int(of.batch_number[option, stair]), rates[-1]
                    )
                )
                cover[of.service[option]] += rates[-1]
        clocks = t.problem.gpu_types[t.pools[pool].gpu_type].clocks_mhz
        found.append((pool, index, clocks[-1 - clock], residents))
    part = np.minimum(t.rate / np.maximum(cover, 1e-300), 1.0)
    return tuple(
        ExactPlacements(pool, index, clock, tuple(_carrying(t, resident, part) for resident in residents))
        for pool, index, clock, residents in found
    )


def _carrying(t: Tables, resident: ExactResident, part: Floats) -> ExactResident:
    share = float(part[t.offer_service[resident.offer]])
    return ExactResident(resident.offer, resident.sm_percent, resident.batch, resident.rate_per_second * share)
