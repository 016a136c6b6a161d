"""The level of a regular series of rates, in logarithms, and the times at which it is silent."""

from __future__ import annotations

import math

SILENT_SHARE = 0.02  # of the highest rate of late; a lower one is silence, or the edge of it
LEAST_RATE = 1e-9


class Levels:
    """The logarithm of a rate by step, where silence keeps the level before it."""

    def __init__(self, steps_a_day: int) -> None:
        self.kept = 7 * steps_a_day + 1
        self.forgets = 0.5 ** (1.0 / steps_a_day)  # what a day ago was highest counts half
        self.highest = 0.0
        self.logs: list[float] = []  # the newest last
        self.is_silent = True

    def observe(self, rate: float) -> None:
        """Takes the rate of one more step."""
        self.highest = max(rate, self.highest * self.forgets)
        self.is_silent = rate <= SILENT_SHARE * self.highest
        if not self.is_silent:
            self.logs.append(math.log(rate))
        elif self.logs:
            self.logs.append(self.logs[-1])
        if len(self.logs) > 2 * self.kept:
            del self.logs[: -self.kept]

    def back(self, steps: int) -> float | None:
        """Returns the level so many steps ago, None before the first."""
        return self.logs[-1 - steps] if 0 <= steps < len(self.logs) else None

    def gain(self, steps: int, until: int) -> float:
        """Returns by how much the level rose from so many steps ago until later, 0 where that is not known."""
        before, after = self.back(steps), self.back(until)
        return 0.0 if before is None or after is None else after - before
