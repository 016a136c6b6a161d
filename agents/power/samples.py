"""Peak and mean of the watts read within one period."""

from __future__ import annotations

from collections.abc import Iterable

MOST_W = 100_000.0  # no GPU draws that much; a reading beyond is none


def peak_and_mean(watts: Iterable[float | None]) -> tuple[float, float] | None:
    """Of what a GPU can draw: not of NaN, infinity, negatives; None when nothing is left."""
    read = [one for one in watts if one is not None and 0 <= one <= MOST_W]
    return (max(read), sum(read) / len(read)) if read else None
