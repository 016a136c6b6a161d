"""A figure of the accuracy benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AccuracyRow:
    """One prediction: what, on which data, from how many cases; our figure and those of the baselines, in one unit."""

    what: str  # as in "latency.hasgpu"
    data: str  # the file or folder that was read
    n: int  # predictions judged
    ours: float
    baselines: Mapping[str, float] = field(default_factory=dict)
    unit: str = "%"
    note: str = ""
