"""InSS's latency of one task at a batch server: the queue ahead of it, and the time until its batch is full."""

from __future__ import annotations

import math


def task_latency(queued: int, batch: int, remaining: float, exec: float, rate: float) -> float:  # noqa: A002 (the paper's word)
    """InSS, equation (2), for a task of size 1.

    `queued` requests wait ahead of it, `remaining` is the rest of the batch that runs now, `exec` the time of one
    batch (the paper's t_inf), both in one unit of time, and `rate` the requests that arrive per unit of time.

    If enough requests wait to fill a batch, the task waits for the full batches ahead of its own. Otherwise its batch
    starts when the running one is done and the missing requests have arrived, which takes (batch - W) / rate on
    average.
    """
    if queued < 0 or batch < 1:
        raise ValueError(f"queued {queued} must be 0 or more, and batch {batch} 1 or more")
    if remaining < 0.0 or exec <= 0.0 or rate < 0.0:
        required = f"remaining {remaining:g} must be 0 or more, exec {exec:g} over 0, and rate {rate:g} 0 or more"
        raise ValueError(required)
    waiting = queued + 1  # W, with the task itself
    if waiting >= batch:
        return remaining + math.ceil(waiting / batch) * exec
    assembly = (batch - waiting) / rate if rate > 0.0 else math.inf
    return max(remaining, assembly) + exec
