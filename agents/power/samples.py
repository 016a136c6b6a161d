"""Peak and mean of the watts read within one period."""

from __future__ import annotations

import math
from collections.abc import Iterable


def peak_and_mean(watts: Iterable[float | None]) -> tuple[float, float] | None:
    """What was read, without what no GPU draws (None, NaN, infinity, negatives); None when nothing is left."""
    read = [one for one in watts if one is not None and math.isfinite(one) and one >= 0]
    return (max(read), sum(read) / len(read)) if read else None
