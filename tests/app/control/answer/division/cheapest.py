"""Finds the cheapest division of a few A100s by trying all of them, for services that must each be alone on a device.

It shares nothing with the product: it has a table and a rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple


class Piece(NamedTuple):
    """A device: its memory, and the part of the GPU's SMs that is as fast."""

    memory_gib: float
    share: float


class Need(NamedTuple):
    """What a service needs of the device where it is alone."""

    memory_gib: float
    slo_ms: float
    latency_ms: Mapping[int, float]  # by SM% of a whole GPU


WHOLE = [Piece(40.0, 1.0)]
WAYS = {
    "whole": WHOLE,
    "1g.5gb": [Piece(4.75, min(14 / 108, 1 / 8))] * 7,
    "1g.10gb": [Piece(9.62, min(14 / 108, 2 / 8))] * 4,
    "2g.10gb": [Piece(9.62, min(28 / 108, 2 / 8))] * 3,
    "3g.20gb": [Piece(19.5, min(42 / 108, 4 / 8))] * 2,
}


def count_gpus(needs: Sequence[Need], gpus: int, ways: Sequence[str] = tuple(WAYS)) -> int:
    """Returns how few GPUs serve all of them; more than there are where none suffice."""
    for used in range(1, gpus + 1):
        for chosen in combinations_with_replacement(ways, used):
            if can_seat(needs, [piece for way in chosen for piece in WAYS[way]]):
                return used
    return gpus + 1


def can_seat(needs: Sequence[Need], pieces: Sequence[Piece]) -> bool:
    """Tells if each service finds a piece of its own: augmenting paths of a matching."""
    taken: dict[int, int] = {}

    def seat(service: int, seen: set[int]) -> bool:
        for at, piece in enumerate(pieces):
            if at in seen or not fits(needs[service], piece):
                continue
            seen.add(at)
            if at not in taken or seat(taken[at], seen):
                taken[at] = service
                return True
        return False

    return all(seat(service, set()) for service in range(len(needs)))


def fits(need: Need, piece: Piece) -> bool:
    return need.memory_gib <= piece.memory_gib and read(need.latency_ms, 100 * piece.share) * 1.05 <= need.slo_ms


def read(curve: Mapping[int, float], percent: float) -> float:
    points = sorted(curve.items())
    if percent < points[0][0]:
        return float("inf")
    for (low, slow), (high, fast) in pairwise(points):
        if percent <= high:
            return slow + (percent - low) / (high - low) * (fast - slow)
    return points[-1][1]
