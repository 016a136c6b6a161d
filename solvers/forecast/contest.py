"""A forecast some steps ahead by candidates that compete, service by service, by the pinball loss that they had."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.forecast.levels import LEAST_RATE, Levels
from solvers.forecast.margins import Margins
from solvers.forecast.points import NAMES, Points

Floats: TypeAlias = NDArray[np.float64]

KEPT_DAYS = 14  # of errors and of rates after silence
TYPICAL = 0.02  # weight of the newest loss in the typical loss, by which losses are measured
DECIDED = 12.0  # a candidate worse by the typical loss in the mean has e to the minus this as its weight
LAST_STEP = 0.05  # of the mean error, by which the chosen quantile is moved
MEMORY = 0.01


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """A forecast of a rate: its median, and the rate that it exceeds only in the share 1 - quantile of cases."""

    middle: float
    upper: float
    best: str  # the candidate that counts most for the upper quantile


@dataclass(frozen=True, slots=True)
class _Stated:
    """A forecast that waits for its step, in logarithms."""

    points: Floats
    uppers: Floats  # by kind of margin and candidate
    upper: float
    middle: float
    silent: tuple[float, float] | None  # of a silent service: upper rates by the two ways
    level: float


class Contest:
    """Forecasts one service's rate `lead` steps ahead from rates at even steps."""

    def __init__(self, lead: int, steps_a_day: int, quantile: float) -> None:
        self.quantile = quantile
        self.levels = Levels(steps_a_day)
        self.points = Points(lead, steps_a_day)
        kept = KEPT_DAYS * steps_a_day
        self.margins = Margins(len(NAMES), quantile, kept)
        self.forgets = 1.0 - 1.0 / (2 * steps_a_day)  # losses of two days count
        self.losses = np.zeros((3, len(NAMES)))
        self.distances = np.zeros(len(NAMES))
        self.typical = 0.01
        self.shift, self.mean_error = 0.0, 0.1  # of the chosen quantile, which is corrected once more
        # Rates after silence, as shares of the level before it; the first one is a doubt.
        self.returns = deque([1.0], maxlen=kept)
        self.silent_losses = [0.0, 0.0]
        self.waiting: deque[_Stated | None] = deque([None] * lead)

    def observe(self, rate: float) -> ExpectedRate:
        """Takes the rate of one more step, and forecasts the one `lead` steps later."""
        self.levels.observe(rate)
        stated = self.waiting.popleft()
        if stated and stated.silent:
            self._learn_silence(stated, rate)
        elif stated and not self.levels.is_silent:
            self._learn(stated, math.log(rate))
        if not self.levels.logs:
            self.waiting.append(None)
            return ExpectedRate(rate, rate, NAMES[0])
        level = self.levels.logs[-1]
        points = level + self.points.gains(self.levels)
        if self.levels.is_silent:
            return self._forecast_silent(rate, math.exp(level), points)
        uppers = points + self.margins.now()
        weights = self._weights(self.losses / max(self.typical, 1e-6))
        upper = float((weights * uppers).sum()) + self.shift
        closest = self._weights(self.distances / max(float(self.distances.min()), 1e-6))
        middle = float((closest * points).sum())
        self.waiting.append(_Stated(points, uppers, upper, middle, None, math.exp(level)))
        best = NAMES[int(weights.sum(axis=0).argmax())]
        return ExpectedRate(math.exp(middle), math.exp(upper), best)

    def _weights(self, losses: Floats) -> Floats:
        weights = np.exp(-DECIDED * (losses - losses.min()))
        found: Floats = weights / weights.sum()
        return found

    def _pinball(self, shortfall: Floats) -> Floats:
        return np.where(shortfall > 0, self.quantile * shortfall, (self.quantile - 1.0) * shortfall)

    def _learn(self, stated: _Stated, log_rate: float) -> None:
        errors, shortfalls = log_rate - stated.points, log_rate - stated.uppers
        losses = self._pinball(shortfalls)
        self.typical += TYPICAL * (float(np.median(losses)) - self.typical)
        self.losses = self.losses * self.forgets + losses * (1.0 - self.forgets)
        self.distances = self.distances * self.forgets + np.abs(errors) * (1.0 - self.forgets)
        self.margins.learn(errors, shortfalls)
        up = self.quantile if log_rate > stated.upper else self.quantile - 1.0
        self.shift += LAST_STEP * self.mean_error * up
        self.mean_error += MEMORY * (abs(log_rate - stated.middle) - self.mean_error)

    def _forecast_silent(self, rate: float, level: float, points: Floats) -> ExpectedRate:
        """Forecasts a silent service: by how it came back before, or by its rate now, whichever lost less."""
        ordered = sorted(self.returns)
        back = level * ordered[min(len(ordered) - 1, math.ceil(self.quantile * (len(ordered) - 1)))]
        upper = back if self.silent_losses[0] <= self.silent_losses[1] else rate
        self.waiting.append(_Stated(points, points, 0.0, 0.0, (back, rate), level))
        return ExpectedRate(level * median(ordered), max(upper, LEAST_RATE), "silence")

    def _learn_silence(self, stated: _Stated, rate: float) -> None:
        self.returns.append(rate / stated.level)
        for way, upper in enumerate(stated.silent or ()):
            self.silent_losses[way] += float(self._pinball(np.array(rate - upper))) / stated.level
