"""A forecast some steps ahead by candidates that compete, service by service, by the pinball loss that they had.

Each candidate states by how much the level rises until then, in logarithms, and has margins to a quantile of the rate.
A margin that follows rises a little after each rate above the quantile and falls a ninth of that (at 0.9) after each
below, so that its coverage holds in the long run whatever the errors are (adaptive conformal inference).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.forecast.levels import LEAST_RATE, Levels

Floats: TypeAlias = NDArray[np.float64]

KEPT_DAYS = 14  # of errors and of rates after silence
TYPICAL = 0.02  # weight of the newest loss in the typical loss, by which losses are measured
DECIDED = 12.0  # a candidate worse by the typical loss in the mean has e to the minus this as its weight
LAST_STEP = 0.05  # of the mean error, by which the chosen quantile is moved
MEMORY = 0.01  # weight of the newest error in the mean error


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


NAMES = ("last", "smooth", "day", "week", "regression")
QUICK, SLOW = 0.3, 0.05  # weights of the newest step in the two smoothed levels
CONSTANT = 0.05  # the regression's constant changes little at a time
MOST_GAIN = 1.0  # a factor of e: beyond it a change teaches the regression no more
FORGETS = 0.9995  # a step: the regression forgets half in some ten days of ten minutes
DOUBT = 50.0  # prior variance of a coefficient
MOST_DOUBT = 1e4


class Regression:
    """Least squares with forgetting, step by step: a Kalman filter of coefficients that hardly change."""

    def __init__(self, size: int) -> None:
        self.weights = np.zeros(size)
        self.doubt = np.eye(size) * DOUBT

    def learn(self, inputs: Floats, output: float) -> None:
        toward = self.doubt @ inputs
        step = toward / (FORGETS + float(inputs @ toward))
        self.weights = self.weights + step * (output - float(self.weights @ inputs))
        self.doubt = (self.doubt - np.outer(step, toward)) / FORGETS
        total = float(np.trace(self.doubt))
        if total > MOST_DOUBT:  # nothing moved for long
            self.doubt *= MOST_DOUBT / total


class Points:
    """The candidates' gains at a lead, kept until the step that they are about."""

    def __init__(self, lead: int, steps_a_day: int) -> None:
        self.lead, self.day = lead, steps_a_day
        self.quick = self.slow = 0.0
        self.regression = Regression(7)
        self.inputs: list[tuple[Floats, bool]] = []  # of the last `lead` steps, with whether each was silent

    def gains(self, levels: Levels) -> Floats:
        """Takes the newest level, and returns each candidate's gain from here on."""
        now = levels.logs[-1]
        if len(levels.logs) == 1:
            self.quick = self.slow = now
        self.quick += QUICK * (now - self.quick)
        self.slow += SLOW * (now - self.slow)
        if len(self.inputs) == self.lead:
            before, was_silent = self.inputs.pop(0)
            if not was_silent and not levels.is_silent:
                gained = levels.gain(self.lead, 0)
                self.regression.learn(before, min(max(gained, -MOST_GAIN), MOST_GAIN))
        day, week = self._season(levels, self.day), self._season(levels, 7 * self.day)
        then = levels.back(self.day - self.lead) if self.day > self.lead else None
        inputs = np.array(
            [CONSTANT, self.quick - now, self.slow - now, levels.gain(1, 0), day, (then or now) - now, week]
        )
        inputs = np.clip(inputs, -MOST_GAIN, MOST_GAIN)
        self.inputs.append((inputs, levels.is_silent))
        return np.array([0.0, self.quick - now, day / 2, week, float(self.regression.weights @ inputs)])

    def _season(self, levels: Levels, ago: int) -> float:
        """Returns the gain over the same steps so long ago."""
        return levels.gain(ago, ago - self.lead) if ago > self.lead else 0.0


STEPS = (0.02, 0.1)  # shares of the mean error by which a margin moves
FIRST = 0.1  # margin and mean error before any error is known
FEWEST = 20  # errors, before their quantile is used


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
