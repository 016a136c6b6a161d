"""Chooses groups of GPUs that may cost less: a GPU that is worth little for its price, and others near it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from solvers.planning.batches.batch import BatchGroup, BatchKind
from solvers.planning.batches.trials import BatchTrials

# A refill gains most, so every second group is refilled.
KINDS = (BatchKind.EMPTIED, BatchKind.SOLVED, BatchKind.REFILLED, BatchKind.REFILLED)
SIZES = {BatchKind.EMPTIED: (1, 2), BatchKind.SOLVED: (2, 5), BatchKind.REFILLED: (3, 12)}  # GPUs of a group
MOST_SEED = 1_000  # of a refill
WORST_GPUS = 4  # of the fleet: a share of the groups begins with one of them
WORST_FIRST_SHARE = 0.4  # of the groups
LOOKED_AT_GPUS = 4  # chosen at random: each other group begins with the worst of them
NODE_SHARE = 0.3  # of the groups are all GPUs in use of a node, where nodes are billed whole
LOOKED_AT_NODES = 3  # chosen at random: the one with fewest GPUs in use is emptied
DISPLACING_GPUS = 2  # of the worst
MOST_DISPLACING = 16  # groups for each of them
MOST_DISPLACED_FOR = 2  # instances: more of them seldom fit where one has given way
STRANGER_SHARE = 0.25  # of the others in a group; the rest have a service in common with the first


def groups(trials: BatchTrials, count: int, seed: int) -> Iterator[BatchGroup]:
    """Yields at most `count` groups, each once."""
    d, rng = trials.board, np.random.default_rng(seed)
    worst = worst_first(trials)
    used = sorted(worst)
    rank = {gpu: place for place, gpu in enumerate(worst)}
    known: set[BatchGroup] = set()
    nodes = _nodes(trials, used)
    for _ in range(count if used else 0):
        if nodes and rng.random() < NODE_SHARE:
            node = min(rng.choice(len(nodes), LOOKED_AT_NODES).tolist(), key=lambda at: (len(nodes[at]), at))
            group = BatchGroup(tuple(sorted(d.place_of[gpu] for gpu in nodes[node])), BatchKind.EMPTIED)
            if group not in known:
                known.add(group)
                yield group
            continue
        kind = KINDS[rng.integers(len(KINDS))]
        least, most = SIZES[kind]
        size = int(rng.integers(least, most + 1))
        if rng.random() < WORST_FIRST_SHARE:
            first = int(rng.choice(worst[:WORST_GPUS]))
        else:
            first = min(rng.choice(used, LOOKED_AT_GPUS).tolist(), key=rank.__getitem__)
        chosen = _add_others(trials, first, min(size, len(used)), used, rng)
        refill_seed = int(rng.integers(MOST_SEED)) if kind is BatchKind.REFILLED else 0
        group = BatchGroup(tuple(sorted(d.place_of[gpu] for gpu in chosen)), kind, seed=refill_seed)
        if group not in known:
            known.add(group)
            yield group


def displacing(trials: BatchTrials) -> Iterator[BatchGroup]:
    """Yields groups that empty one of the worst GPUs, while one instance gives way to what it runs.

    A service that lacks capacity often opens a GPU because its own are full of others, one of which fits elsewhere.
    """
    d = trials.board
    worst = worst_first(trials)
    few = [gpu for gpu in worst if d.b.count[gpu] <= MOST_DISPLACED_FOR]
    for first in few[:DISPLACING_GPUS]:
        services, near = _services_on(trials, first), _near(trials, first)
        others = sorted((gpu for gpu in worst if gpu != first), key=lambda gpu: gpu not in near)
        lines = (line for gpu in others for line in d.lines[gpu] if line)
        strangers = (line for line in lines if d.t.number_of[line.service] not in services)
        for line in islice(strangers, MOST_DISPLACING):
            yield BatchGroup((d.place_of[first],), BatchKind.DISPLACING, leaving=(line.id,))


def _nodes(trials: BatchTrials, used: list[int]) -> list[list[int]]:
    """Returns the GPUs in use of each node that is billed whole and may be emptied: none runs a job that must stay."""
    d = trials.board
    whole = set(d.shop.nodes.gpus.tolist())
    kept = {node for node, _ in trials.closed}
    found: dict[str, list[int]] = {}
    for gpu in used:
        if gpu in whole and d.place_of[gpu][0] not in kept:
            found.setdefault(d.place_of[gpu][0], []).append(gpu)
    return list(found.values())


def worst_first(trials: BatchTrials) -> list[int]:
    """Returns the GPUs in use that batches may change, first those that are worth least for their price."""
    d = trials.board
    used = [gpu for gpu in np.flatnonzero(d.b.count).tolist() if d.place_of[gpu] not in trials.closed]
    return sorted(used, key=lambda gpu: (_worth(trials, gpu), gpu))


def _add_others(trials: BatchTrials, first: int, size: int, used: list[int], rng: np.random.Generator) -> set[int]:
    chosen = {first}
    near = sorted(_near(trials, first).intersection(used) - chosen)
    while len(chosen) < size:
        chosen.add(int(rng.choice(near if near and rng.random() >= STRANGER_SHARE else used)))
        near = [gpu for gpu in near if gpu not in chosen]
    return chosen


def _worth(trials: BatchTrials, gpu: int) -> float:
    """Returns what its instances carry, at the prices of rates, as a part of its own price."""
    d, count = trials.board, int(trials.board.b.count[gpu])
    services = d.w.offer_service[d.b.offer[gpu, :count]]
    return float((trials.prices[services] * d.x.rate[gpu, :count]).sum() / d.x.value[gpu])


def _near(trials: BatchTrials, gpu: int) -> set[int]:
    """Returns the GPUs that have a service in common with this one."""
    homes = trials.board.homes
    return {other for service in _services_on(trials, gpu) for other in homes[service]}


def _services_on(trials: BatchTrials, gpu: int) -> list[int]:
    d = trials.board
    found: list[int] = d.w.offer_service[d.b.offer[gpu, : d.b.count[gpu]]].tolist()
    return found
