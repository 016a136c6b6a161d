"""How far replicas may move in one write: a wrong figure then costs one step, and somebody sees it before the next."""

from __future__ import annotations

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import MOST_REPLICAS

FREE_STEP = 4  # replicas, up or down, however few there are


def bound_replicas(current: int, wanted: int, bounds: AnnotatedBounds) -> int:
    """Returns the replicas of the next write: at most twice as many, or four more, and at least half, or four fewer.

    A workload goes to none only where its annotation says that none is enough. Bounds come before steps, so that one
    that stands outside them comes back by steps, too.
    """
    inside = bounds.apply(min(wanted, MOST_REPLICAS))
    highest, lowest = max(2 * current, current + FREE_STEP), min((current + 1) // 2, current - FREE_STEP)
    step = min(max(inside, lowest), highest)
    return max(step, min(1, bounds.least))
