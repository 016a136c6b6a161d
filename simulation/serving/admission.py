"""Distributes requests as a gateway does in an overload: by weight, to a copy that has room, or to none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agents.keeper.copies import NodeCopy
from simulation.serving.batches import Floats, Ints, assign_arrivals
from simulation.serving.copies import CopyWork, largest_batch

NO_LIMIT = 1 << 40


def admit_arrivals(
    ready: Sequence[tuple[NodeCopy, CopyWork]],
    arrivals: Floats,
    first: Ints,
    most_open: int,
    most_by_copy: Mapping[str, int],
) -> int:
    """Gives the arrivals to copies, each to its first choice or the next one with room; returns how many got none."""
    most = np.array([most_by_copy.get(copy.id, 0) for copy, _ in ready], dtype=np.int64)
    if most.any():
        most_open, most[most == 0] = NO_LIMIT, most[most > 0].min()  # of a copy that is new since the last look
    waiting = np.concatenate([work.queue for _, work in ready])
    counts = np.array([len(work.queue) for _, work in ready], dtype=np.int64)
    places = assign_arrivals(
        arrivals, first.astype(np.int64), waiting, counts,
        np.array([work.in_batch for _, work in ready], dtype=np.int64),
        np.array([work.free for _, work in ready]),
        np.array([largest_batch(copy) for copy, _ in ready], dtype=np.int64),
        np.array([work.exec_s for _, work in ready]),
        np.array([copy.wanted.batch_timeout_ms / 1000 for copy, _ in ready]),
        most,
        most_open,
    )  # fmt: skip
    for number, (_, work) in enumerate(ready):
        own = arrivals[places == number]
        if len(own):
            work.arrive(own)
    return int((places < 0).sum())
