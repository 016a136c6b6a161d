"""Turns the patterns of a proof into residents on GPUs, as few as are needed, on the nodes that cost least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.kernels import STAIRS, ExactOptions, cap_of
from solvers.planning.exact.patterns import Patterns
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.gather import cheapest_nodes
from solvers.planning.search.realise import PlacedInstances
from solvers.planning.search.tables import Pool, Tables
from solvers.planning.search.workshop import closed_gpus

Code: TypeAlias = NDArray[np.int32]  # a pattern
PickedPattern: TypeAlias = tuple[int, Code]  # on a GPU of a pool


def needed(space: Patterns, picked: Sequence[PickedPattern], prices: Floats) -> list[PickedPattern]:
    """Returns the GPUs without those that the others do as well without; the ones worth least go first.

    An empty GPU goes, too: a node that is paid may have some.
    """
    rates = np.vstack([space.exact(pool, pattern[None, :])[0] for pool, pattern in picked])
    cover = rates.sum(axis=0)
    enough = np.minimum(cover, 1.0)
    kept = np.ones(len(picked), dtype=np.bool_)
    for at in np.argsort(rates @ prices, kind="stable"):
        if (cover - rates[at] >= enough).all():
            cover, kept[at] = cover - rates[at], False
    return [each for each, is_kept in zip(picked, kept, strict=True) if is_kept]


def exact_placements(t: Tables, space: Patterns, picked: Sequence[PickedPattern]) -> PlacedInstances:
    """Places the pattern of each GPU in `picked`; residents share the need in proportion to what they could carry."""
    first = np.cumsum([0, *(len(pool.gpus) for pool in t.pools)]).tolist()  # GPU of each pool
    used, is_closed = Counter(pool for pool, _ in picked), closed_gpus(t)
    free = {
        pool: iter(_cheapest_gpus(t.pools[pool], count, is_closed[first[pool] : first[pool + 1]]))
        for pool, count in used.items()
    }
    rows: list[tuple[int, int, int, int, float, float]] = []
    for pool, pattern in picked:
        at = first[pool] + next(free[pool])
        of = space.options[space.site[pool]]
        step = int(space.exact(pool, pattern[None, :])[1][0, 0])
        clocks = t.problem.gpu_types[t.pools[pool].gpu_type].clocks_mhz
        rows += [(at, *resident, clocks[-1] / clocks[-1 - step]) for resident in _residents(of, pattern, step)]
    gpu, offer, sm, batch, cap, clock = (np.array(column) for column in zip(*rows, strict=True))
    services = t.offer_service[offer]
    cover = np.bincount(services, cap, len(t.services))
    share = np.minimum(t.rate / np.maximum(cover, 1e-300), 1.0)
    return PlacedInstances(gpu, offer, sm, batch, cap * share[services], clock)


def _cheapest_gpus(pool: Pool, used: int, is_closed: Ints) -> list[int]:
    """Returns so many GPUs of a pool by number; of nodes billed whole, those with the least sum of prices.

    GPUs where a job must stay are left to it, unless the others are too few.
    """
    size = np.array(pool.node_sizes or [1] * len(pool.gpus), dtype=np.int64)
    node = np.repeat(np.arange(len(size)), size)
    room = np.bincount(node, is_closed == 0).astype(np.int64)
    largest_first = np.argsort(-size, kind="stable").tolist()
    chosen = cheapest_nodes(largest_first, room if room.sum() >= used else size, size, used)
    gpus = np.flatnonzero(np.isin(node, chosen))
    return sorted(gpus[np.argsort(is_closed[gpus], kind="stable")][:used].tolist())


def _residents(of: ExactOptions, pattern: Code, clock: int) -> Iterator[tuple[int, int, int, float]]:
    """Yields offer, SM%, batch and the most that each resident of a pattern carries, but for those that carry 0."""
    codes = [int(code) for code in pattern if code >= 0]
    total = sum(float(of.pressure[code // STAIRS]) for code in codes)
    for code in codes:
        option, last = divmod(code, STAIRS)
        beside = max(total - float(of.pressure[option]), 0.0)
        rates = [cap_of(of, option, clock, stair, beside) for stair in range(last + 1)]
        if rates[-1] > 0:
            batch = of.batch_number[option, rates.index(rates[-1])]
            yield int(of.offer[option]), int(of.sm[option]), int(batch), rates[-1]
