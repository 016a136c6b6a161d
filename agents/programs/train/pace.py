"""A job's pace: its speed at its SM share, and the steps due by now."""

from __future__ import annotations

import math

from agents.programs.serve import profile

LONGEST_PAUSE_SECONDS = 1.0  # a process that was stopped for an hour does not catch up on all of it


def parse_speeds(text: str) -> tuple[tuple[float, float], ...]:
    """Parses `10:1.1,50:5.5,100:6.1`: SM share in percent and steps a second. ValueError names the fault."""
    points = []
    for part in text.split(","):
        share, _, speed = part.partition(":")
        point = (float(share), float(speed or "nan"))
        if not (0 < point[0] <= 100 and 0 < point[1] < math.inf):
            raise ValueError(f"{part!r} must be an SM% in 1..100, a colon, and steps a second above 0")
        points.append(point)
    points.sort()
    if len({share for share, _ in points}) < len(points):
        raise ValueError(f"{text!r} contains an SM% twice")
    return tuple(points)


def speed_at(points: tuple[tuple[float, float], ...], sm_percent: float) -> float:
    """Interpolates linearly, through 0 below the first point and level after the last."""
    return profile.interpolate(((0.0, 0.0), *points), sm_percent)


class StepPace:
    """The steps that have become due since the beginning; `now` is any monotonic clock."""

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._counted_to = now
        self._fraction = 0.0

    def due(self, now: float) -> int:
        passed = min(now - self._counted_to, LONGEST_PAUSE_SECONDS)
        self._counted_to = now
        self._fraction += passed * self.per_second
        whole = int(self._fraction)
        self._fraction -= whole
        return whole
