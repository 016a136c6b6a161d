"""A loop whose CPU time tells how quick this machine's cores are now: other limits are multiples of it."""

from __future__ import annotations

import time

ADDITIONS = 5_000_000
QUICK_SECONDS = 0.25  # of the loop, on the machine in whose seconds limits are written
PARTS, ROUNDS = 10, 3


def loop_seconds() -> float:
    """The CPU time of five million additions in a function: the least of some rounds, each of a tenth of them."""
    return min(_tenth() for _ in range(ROUNDS)) * PARTS


def _tenth() -> float:
    began = time.thread_time()
    total = 0
    for number in range(ADDITIONS // PARTS):
        total += number
    return time.thread_time() - began
