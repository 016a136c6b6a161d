"""The indexes of a node's GPUs."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import pairwise


@cache
def gpu_indexes(count: int) -> tuple[int, ...]:
    """Returns the indexes of a node's GPUs where none is missing; nodes of one size share the tuple."""
    return tuple(range(count))


@lru_cache(maxsize=1024)  # a fleet has few different ones
def are_rising(gpus: tuple[int, ...]) -> bool:
    """Returns whether these are indexes from 0, each higher than the one before."""
    return all(index >= 0 for index in gpus[:1]) and all(before < after for before, after in pairwise(gpus))
