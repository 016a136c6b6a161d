"""The order of HetSev's algorithm 1: k queues of pending instances, and a fair buffer of them each round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

QUEUES = 4  # k
BUFFER = 8  # beta
MOST_ROUNDS = 50  # of moving the centres


@dataclass(frozen=True, slots=True)
class PendingInstance:
    """An instance that waits for a place."""

    name: str
    model: str
    memory_gib: float
    waited_seconds: float


def features(instances: tuple[PendingInstance, ...]) -> NDArray[np.float64]:
    """Returns the features by which HetSev groups instances: GPU memory scaled to 0..1, and the model one-hot."""
    memory = np.array([instance.memory_gib for instance in instances])
    span = memory.max() - memory.min() if len(memory) else 0.0
    scaled = (memory - memory.min()) / span if span > 0 else np.zeros(len(memory))
    models = sorted({instance.model for instance in instances})
    one_hot = np.array([[float(instance.model == model) for model in models] for instance in instances])
    return np.column_stack([scaled, one_hot.reshape(len(instances), len(models))])


def k_means(points: NDArray[np.float64], k: int, seed: int) -> list[int]:
    """Returns the cluster of each point: the nearest centre by L1, with centres at the mean that start far apart."""
    if len(points) == 0:
        return []
    start = int(np.random.default_rng(seed).integers(len(points)))
    centres = points[[start]]
    while len(centres) < min(k, len(points)):
        distance = np.abs(points[:, None, :] - centres[None, :, :]).sum(axis=2).min(axis=1)
        centres = np.vstack([centres, points[int(distance.argmax())]])
    nearest = np.zeros(len(points), dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        nearest = np.abs(points[:, None, :] - centres[None, :, :]).sum(axis=2).argmin(axis=1)
        moved = np.array(
            [points[nearest == c].mean(axis=0) if (nearest == c).any() else centre for c, centre in enumerate(centres)]
        )
        if np.array_equal(moved, centres):
            break
        centres = moved
    return [int(cluster) for cluster in nearest]


def buffer(queues: list[list[PendingInstance]], beta: int) -> list[PendingInstance]:
    """Takes up to beta instances out of the queues, by weighted fairness.

    A queue gets places in proportion to its length times its median wait. The heaviest queue comes first; within a
    queue, the instance that has waited longest."""
    weights = [len(q) * median(instance.waited_seconds for instance in q) if q else 0.0 for q in queues]
    if sum(weights) == 0:  # no instance has waited yet
        weights = [float(len(q)) for q in queues]
    places = min(beta, sum(len(q) for q in queues))
    order = sorted(range(len(queues)), key=lambda index: (-weights[index], index))
    taken = [0] * len(queues)
    for _ in range(places):  # the queue furthest below its share is next
        total = sum(taken) + 1
        open_queues = [index for index in order if taken[index] < len(queues[index])]
        chosen = max(open_queues, key=lambda index: weights[index] * total / sum(weights) - taken[index])
        taken[chosen] += 1
    picked: list[PendingInstance] = []
    for index in order:
        queues[index].sort(key=lambda instance: (-instance.waited_seconds, instance.name))
        picked += queues[index][: taken[index]]
        del queues[index][: taken[index]]
    return picked


def sort_fairly(
    instances: Sequence[PendingInstance], k: int = QUEUES, beta: int = BUFFER, seed: int = 0
) -> Iterator[PendingInstance]:
    """Yields pending instances in the order in which they are placed: buffer by buffer out of k queues."""
    pending = tuple(sorted(instances, key=lambda instance: instance.name))
    clusters = k_means(features(pending), k, seed) if pending else []
    queues = [[instance for instance, c in zip(pending, clusters, strict=True) if c == index] for index in range(k)]
    while any(queues):
        yield from buffer(queues, beta)
