"""Gathers what a board runs on the fewest nodes that are billed whole: the GPUs of a pool are alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solvers.planning.fleet.grids import Ints
from solvers.planning.search.workshop import Workshop

EXACT_GPUS = 100  # of a pool: so many are covered by the nodes of least price in all, the others by the largest first


def gather(shop: Workshop) -> None:
    """Moves the residents of whole GPUs to other nodes of their pools, so that fewer nodes are paid."""
    moved = [_gather_pool(shop, int(pool)) for pool in shop.nodes.pools]
    if any(moved):
        shop.restack()


def _gather_pool(shop: Workshop, pool: int) -> bool:
    b, start, end = shop.board, int(shop.pools.start[pool]), int(shop.pools.start[pool + 1])
    node, is_used = b.node[start:end], b.count[start:end] > 0
    if not is_used.any():
        return False
    is_free = is_used | (shop.pools.closed[start:end] == 0)
    names, of = np.unique(node, return_inverse=True)
    room, size, used = (np.bincount(of, flags, len(names)) for flags in (is_free, np.ones(len(of)), is_used))
    kept = fewest(room.astype(np.int64), size.astype(np.int64), used.astype(np.int64))
    if size[kept].sum() >= size[used > 0].sum():
        return False
    stays = np.isin(of, kept)
    targets = [start + int(place) for place in np.flatnonzero(stays & is_free & ~is_used)]
    moved = False
    for source in np.flatnonzero(is_used & ~stays):
        moved = _move(shop, start + int(source), targets) or moved
    return moved


def _move(shop: Workshop, source: int, targets: list[int]) -> bool:
    """Moves the residents of a GPU to the first of these empty ones whose node has room, and takes it off the list."""
    column = shop.column(source)
    for target in targets:
        if shop.has_room(target, column):
            shop.empty(source)
            shop.seat(target, column)
            targets.remove(target)
            return True
    return False


def fewest(room: Ints, size: Ints, used: Ints) -> Ints:
    """Returns nodes with room for all GPUs in use whose sizes add up to least; of nodes alike, those with most in use.

    `room` is what each node can hold, which a job that must stay may lessen; `size` is what is paid.
    """
    order = np.lexsort((np.arange(len(room)), -used, -room, -size))
    need = int(used.sum())
    kept: list[int] = []
    while need > EXACT_GPUS:
        kept.append(int(order[len(kept)]))
        need -= int(room[kept[-1]])
    rest = [int(place) for place in order[len(kept) :]]
    return np.array(sorted([*kept, *cheapest_nodes(rest, room, size, need)]), dtype=np.int64)


def cheapest_nodes(nodes: Sequence[int], room: Ints, size: Ints, need: int) -> list[int]:
    """Returns some of these nodes with room for so many GPUs and the least sum of sizes; earlier ones first."""
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # GPUs covered, up to all: their price, the nodes
    for place in nodes:
        for covered, (paid, chosen) in sorted(best.items(), reverse=True):
            after, price = min(need, covered + int(room[place])), paid + int(size[place])
            if covered < need and (after not in best or price < best[after][0]):
                best[after] = (price, (*chosen, place))
    return list(best[need][1]) if need > 0 else []
