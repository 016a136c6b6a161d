"""Orders instances for placing as HetSev does: k queues alike in memory and model, served by weighted fairness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

QUEUES = 4
BUFFER_INSTANCES = 8
MOST_ROUNDS = 50


def fair_order(instances: Sequence[tuple[float, int]], models: int) -> list[int]:
    """Returns the order of placing (memory in GiB, model) instances that arrived together (HetSev, Algorithm 1).

    All have waited equally long, so a queue weighs what it holds; each round fills the buffer in these parts.
    """
    queues = [queue.tolist() for queue in _queues(instances, models)]
    order: list[int] = []
    while any(queues):
        lengths = np.array([len(queue) for queue in queues])
        exact = min(BUFFER_INSTANCES, lengths.sum()) * lengths / lengths.sum()
        parts = np.floor(exact + 1e-9).astype(int)
        by_rest = np.argsort(parts - exact, kind="stable")
        parts[by_rest[: min(BUFFER_INSTANCES, lengths.sum()) - parts.sum()]] += 1
        for queue, part in zip(queues, parts, strict=True):
            order += queue[:part]
            del queue[:part]
    return order


def _queues(instances: Sequence[tuple[float, int]], models: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Groups by k-means with L1 distances on memory, scaled to 0..1, and the model, one-hot: centres are medians."""
    memory = np.array([memory for memory, _ in instances])
    spread = float(memory.max() - memory.min())
    points = np.zeros((len(instances), 1 + models))
    points[:, 0] = (memory - memory.min()) / spread if spread else 0.0
    points[np.arange(len(instances)), [1 + model for _, model in instances]] = 1.0
    centres = points[np.linspace(0, len(points) - 1, min(QUEUES, len(points))).astype(int)]
    nearest = np.zeros(len(points), dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        before = nearest
        nearest = np.abs(points[:, None] - centres[None]).sum(axis=2).argmin(axis=1)
        if (nearest == before).all():
            break
        centres = np.array(
            [
                np.median(points[nearest == k], axis=0) if (nearest == k).any() else centres[k]
                for k in range(len(centres))
            ]
        )
    return [np.flatnonzero(nearest == k) for k in range(len(centres))]
