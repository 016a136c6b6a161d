"""Tries every placement of few jobs on few GPUs, except those that cannot be better than the best so far."""

from __future__ import annotations

from math import log

import numpy as np

from solvers.planning.jobs.placement import JobPlacement, Value, less, may_open

MOST_PLACEMENTS = 30_000


def is_small(s: JobPlacement) -> bool:
    """Returns whether all placements can be tried."""
    free = [job for job in range(len(s.room.jobs)) if job not in s.room.stays]
    return len(free) * log(len(s.room.places) + 1) <= log(MOST_PLACEMENTS)


def search(s: JobPlacement) -> None:
    """Finds the best placement and applies it; the jobs that must stay are placed already."""
    free = [job for job in s.waiting() if job not in s.room.stays]
    best: list[tuple[Value, list[tuple[int, int]]]] = [(s.value, [])]
    _descend(s, free, sum(s.penalty[job] for job in free), [], best)
    for job, gpu in best[0][1]:
        s.put(job, gpu)


def _descend(
    s: JobPlacement,
    free: list[int],
    undecided: float,
    taken: list[tuple[int, int]],
    best: list[tuple[Value, list[tuple[int, int]]]],
) -> None:
    """Tries the jobs in order, each on every GPU and on none; `undecided` is the cost of leaving the others waiting."""
    if not less((s.cost - undecided, s.waits - len(free), s.seconds), best[0][0]):
        return  # more jobs only add cost and seconds
    if not free:
        if all(_is_paid(s, int(gpu)) for gpu in np.flatnonzero((s.room.fleet.price > 0) & (s.board.taken > 0))):
            best[0] = (s.value, list(taken))
        return
    job, rest = free[0], free[1:]
    for gpu in range(len(s.room.places)):
        mark = s.mark()
        if s.put(job, gpu):
            _descend(s, rest, undecided - s.penalty[job], [*taken, (job, gpu)], best)
            s.back(mark)
    _descend(s, rest, undecided - s.penalty[job], taken, best)


def _is_paid(s: JobPlacement, gpu: int) -> bool:
    """Returns whether one of the jobs that share its price may open it, or stays there."""
    price = float(s.room.fleet.price[gpu])
    return any(job in s.room.stays or may_open(s.room.jobs[job], price) for job in s.sharing(gpu))
