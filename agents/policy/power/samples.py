"""Computes peak and mean watts of one period from readings within it.

A driver's reading of watts is the mean of the last second: just after a knob has moved it still includes the time
before. The energy counter does not: its difference is what was drawn between two readings. So the counter is used if
there is one. Without it, readings that include time before the move are left out, unless there is no other reading and
most of its time is after the move.
"""

from __future__ import annotations

MOST_W = 100_000.0  # no GPU draws that much; a higher reading is ignored
READING_SECONDS = 1.0  # over which a reading is averaged
SHORTEST_SECONDS = 0.05  # between two counter values; it is not updated more often


class Samples:
    """Collects one GPU's readings, and returns each period's peak and mean."""

    __slots__ = ("_energy", "_moved_at", "_peak_w", "_readings", "_start")

    def __init__(self) -> None:
        self._energy: tuple[float, int] | None = None  # the counter as it was last used
        self._start: tuple[float, int] | None = None  # and at the period's beginning
        self._peak_w: float | None = None
        self._readings: list[tuple[float, float]] = []
        self._moved_at = -READING_SECONDS

    def moved(self, at: float) -> None:
        """Notes that clock or batch was changed at this time, in seconds."""
        self._moved_at = at

    def read(self, at: float, watts: float | None, energy_mj: int | None) -> None:
        """Takes a reading; None, NaN and impossible watts are ignored."""
        if watts is not None and 0 <= watts <= MOST_W:
            self._readings.append((at, watts))
        if energy_mj is None:
            self._energy = None
            return
        if self._energy is None or energy_mj < self._energy[1] or at < self._energy[0]:
            self._energy, self._start, self._peak_w = (at, energy_mj), (at, energy_mj), None
            return
        seconds = at - self._energy[0]
        if seconds >= SHORTEST_SECONDS:
            drawn = (energy_mj - self._energy[1]) / 1000 / seconds
            if drawn <= MOST_W:
                self._peak_w = max(self._peak_w or 0.0, drawn)
            self._energy = (at, energy_mj)

    def period(self) -> tuple[float, float] | None:
        """Returns peak and mean since the last period, or None if nothing was read, and begins the next."""
        found = self._measure_by_energy() or self._measure_by_readings()
        self._start, self._peak_w, self._readings = self._energy, None, []
        return found

    def _measure_by_energy(self) -> tuple[float, float] | None:
        if self._peak_w is None or self._energy is None or self._start is None:
            return None
        seconds = self._energy[0] - self._start[0]
        mean = (self._energy[1] - self._start[1]) / 1000 / seconds
        return (self._peak_w, mean) if mean <= MOST_W else None

    def _measure_by_readings(self) -> tuple[float, float] | None:
        if not self._readings:
            return None
        settled = [watts for at, watts in self._readings if at >= self._moved_at + READING_SECONDS - 0.01]
        last_at, last_w = self._readings[-1]
        watts = settled or ([last_w] if last_at >= self._moved_at + READING_SECONDS / 2 else [])
        if not watts:
            return None
        return max(watts), sum(watts) / len(watts)
