"""Margins from a candidate's point to a quantile of the rate: by all its errors, and by following them.

A margin that follows rises a little after each rate above the quantile and falls a ninth of that (at 0.9) after each
below, so that its coverage holds in the long run whatever the errors are (adaptive conformal inference)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

STEPS = (0.02, 0.1)  # shares of the mean error by which a margin moves
FIRST = 0.1  # margin and mean error before any error is known
FEWEST = 20  # errors, before their quantile is used
MEMORY = 0.01  # weight of the newest error in the mean error


class PastErrors:
    """The quantile of the last errors."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.ordered: list[float] = []
        self.in_time: deque[float] = deque()

    def learn(self, error: float) -> None:
        insort(self.ordered, error)
        self.in_time.append(error)
        if len(self.in_time) > self.kept:
            del self.ordered[bisect_left(self.ordered, self.in_time.popleft())]

    def quantile(self, share: float) -> float | None:
        """Returns the error that this share of new ones do not exceed, None while there are few."""
        count = len(self.ordered)
        return self.ordered[min(count - 1, int(share * (count + 1)))] if count >= FEWEST else None


class Margins:
    """The margins of several candidates: a row for all past errors, and one for each of STEPS."""

    def __init__(self, candidates: int, quantile: float, kept: int) -> None:
        self.quantile = quantile
        self.past = [PastErrors(kept) for _ in range(candidates)]
        self.following = np.full((len(STEPS), candidates), FIRST)
        self.mean_error = np.full(candidates, FIRST)

    def now(self) -> Floats:
        """Returns the margins, by kind and candidate."""
        known = [errors.quantile(self.quantile) for errors in self.past]
        by_past = [self.following[0, at] if margin is None else margin for at, margin in enumerate(known)]
        return np.vstack([by_past, self.following])

    def learn(self, errors: Floats, shortfalls: Floats) -> None:
        """Takes the candidates' errors, and by how much the rate was above each stated quantile, as from `now`."""
        for past, error in zip(self.past, errors.tolist(), strict=True):
            past.learn(error)
        steps = np.array(STEPS)[:, None] * self.mean_error
        self.following += steps * np.where(shortfalls[1:] > 0, self.quantile, self.quantile - 1.0)
        self.mean_error += MEMORY * (np.abs(errors) - self.mean_error)
