"""What was measured of a running instance, for planners that try settings on what runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class MeasuredInstance:
    """The last minute of an instance that went as planned."""

    at: datetime  # when the minute began
    batch: int
    latency_ms: float  # at its SLO's percentile
