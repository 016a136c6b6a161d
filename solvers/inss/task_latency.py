"""InSS's latency of one task that arrives at a batch server: what waits before it, and how its batch comes together."""

from __future__ import annotations

import math


def task_latency(queued: int, batch: int, remaining: float, exec: float, rate: float) -> float:  # noqa: A002 (the paper's word)
    """InSS, equation (2), for a task of size 1.

    `queued` requests wait before it, `remaining` is what is left of the batch that runs now, `exec` the time of one
    batch (the paper's t_inf), all in one unit of time, and `rate` the requests that arrive per such unit.

    With enough for a batch, it waits for the batches before its own, all of them full. With fewer, its batch starts
    when the running one is done and the rest has arrived, which takes (batch - W) / rate on average.
    """
    if queued < 0 or batch < 1:
        raise ValueError(f"{queued} queued, batch {batch}: at least 0 and 1 are needed")
    if remaining < 0.0 or exec <= 0.0 or rate < 0.0:
        raise ValueError(f"remaining {remaining:g}, exec {exec:g}, rate {rate:g}: 0 or more, over 0, 0 or more")
    waiting = queued + 1  # W: with the task itself
    if waiting >= batch:
        return remaining + math.ceil(waiting / batch) * exec
    assembly = (batch - waiting) / rate if rate > 0.0 else math.inf
    return max(remaining, assembly) + exec
