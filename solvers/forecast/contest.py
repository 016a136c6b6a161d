"""A forecast some steps ahead by candidates that compete, service by service, by the pinball loss that they had.

Each candidate states by how much the level rises until then, in logarithms, and has margins to two quantiles of the
rate, which bound it from above and below. A margin that follows rises a little after each rate above the quantile and
falls a ninth of that (at 0.9) after each below, so that its coverage holds in the long run whatever the errors are
(adaptive conformal inference).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
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
    """A forecast of a rate: its median, and a band that it leaves upwards, and downwards, in 1 - quantile of cases."""

    middle: float
    upper: float
    best: str  # the candidate that counts most for the upper quantile
    lower: float = 0.0


@dataclass(frozen=True, slots=True)
class _PendingBound:
    """A quantile that waits for its step, in logarithms: by kind of margin and candidate, and as it was chosen."""

    each: Floats
    chosen: float
    best: str


@dataclass(frozen=True, slots=True)
class _PendingForecast:
    """A forecast that waits for its step, in logarithms."""

    points: Floats
    bounds: tuple[_PendingBound, ...]
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
        self.forgets = 1.0 - 1.0 / (2 * steps_a_day)  # losses of two days count
        self.past = [PastErrors(kept) for _ in NAMES]
        self.bounds = [Bound(share, self.forgets) for share in (quantile, 1.0 - quantile)]
        self.distances = np.zeros(len(NAMES))
        self.mean_errors = np.full(len(NAMES), FIRST)
        self.mean_error = FIRST  # of the chosen middle
        # Rates after silence, as shares of the level before it; the first one is a doubt.
        self.returns = deque([1.0], maxlen=kept)
        self.silent_losses = [0.0, 0.0]
        self.waiting: deque[_PendingForecast | None] = deque([None] * lead)

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
            return ExpectedRate(rate, rate, NAMES[0], rate)
        level = self.levels.logs[-1]
        points = level + self.points.gains(self.levels)
        if self.levels.is_silent:
            return self._forecast_silent(rate, math.exp(level), points)
        upper, lower = (bound.forecast(points, self.past) for bound in self.bounds)
        closest = weigh(self.distances / max(float(self.distances.min()), 1e-6))
        middle = float((closest * points).sum())
        self.waiting.append(_PendingForecast(points, (upper, lower), middle, None, math.exp(level)))
        least = min(lower.chosen, upper.chosen)  # the two are learned apart, and may cross
        return ExpectedRate(math.exp(middle), math.exp(upper.chosen), upper.best, math.exp(least))

    def _learn(self, stated: _PendingForecast, log_rate: float) -> None:
        errors = log_rate - stated.points
        self.distances = self.distances * self.forgets + np.abs(errors) * (1.0 - self.forgets)
        for past, error in zip(self.past, errors.tolist(), strict=True):
            past.learn(error)
        for bound, known in zip(self.bounds, stated.bounds, strict=True):
            bound.learn(known, log_rate, self.mean_errors, self.mean_error)
        self.mean_errors += MEMORY * (np.abs(errors) - self.mean_errors)
        self.mean_error += MEMORY * (abs(log_rate - stated.middle) - self.mean_error)

    def _forecast_silent(self, rate: float, level: float, points: Floats) -> ExpectedRate:
        """Forecasts a silent service: by how it came back before, or by its rate now, whichever lost less."""
        ordered = sorted(self.returns)
        back = level * ordered[min(len(ordered) - 1, math.ceil(self.quantile * (len(ordered) - 1)))]
        upper = back if self.silent_losses[0] <= self.silent_losses[1] else rate
        self.waiting.append(_PendingForecast(points, (), 0.0, (back, rate), level))
        return ExpectedRate(level * median(ordered), max(upper, LEAST_RATE), "silence", min(rate, upper))

    def _learn_silence(self, stated: _PendingForecast, rate: float) -> None:
        self.returns.append(rate / stated.level)
        for way, upper in enumerate(stated.silent or ()):
            self.silent_losses[way] += float(find_pinball_loss(np.array(rate - upper), self.quantile)) / stated.level


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


class Bound:
    """A quantile of the rates to come: each candidate's margins to it, what these lost of late, and their mix.

    Margins are a row by all past errors, and one that follows the quantile for each of STEPS.
    """

    def __init__(self, quantile: float, forgets: float) -> None:
        self.quantile, self.forgets = quantile, forgets
        self.following = np.full((len(STEPS), len(NAMES)), FIRST if quantile > 1 / 2 else -FIRST)
        self.losses = np.zeros((1 + len(STEPS), len(NAMES)))
        self.typical = 0.01
        self.shift = 0.0  # of the chosen quantile, which is corrected once more

    def forecast(self, points: Floats, past: Sequence[PastErrors]) -> _PendingBound:
        """Returns the quantile by these points of the candidates."""
        known = [errors.quantile(self.quantile) for errors in past]
        by_past = [self.following[0, at] if margin is None else margin for at, margin in enumerate(known)]
        each = points + np.vstack([by_past, self.following])
        weights = weigh(self.losses / max(self.typical, 1e-6))
        chosen = float((weights * each).sum()) + self.shift
        return _PendingBound(each, chosen, NAMES[int(weights.sum(axis=0).argmax())])

    def learn(self, stated: _PendingBound, log_rate: float, mean_errors: Floats, mean_error: float) -> None:
        """Takes the rate that came; `mean_errors` are those of the candidates, `mean_error` that of the middle."""
        shortfalls = log_rate - stated.each
        losses = find_pinball_loss(shortfalls, self.quantile)
        self.typical += TYPICAL * (float(np.median(losses)) - self.typical)
        self.losses = self.losses * self.forgets + losses * (1.0 - self.forgets)
        steps = np.array(STEPS)[:, None] * mean_errors
        self.following += steps * np.where(shortfalls[1:] > 0, self.quantile, self.quantile - 1.0)
        up = self.quantile if log_rate > stated.chosen else self.quantile - 1.0
        self.shift += LAST_STEP * mean_error * up


def weigh(losses: Floats) -> Floats:
    """Returns the weights of candidates, which sum to one: the less one lost, the more it has."""
    weights = np.exp(-DECIDED * (losses - losses.min()))
    found: Floats = weights / weights.sum()
    return found


def find_pinball_loss(shortfall: Floats, quantile: float) -> Floats:
    """Returns the pinball loss where the rate was above the quantile by `shortfall`."""
    return np.where(shortfall > 0, quantile * shortfall, (quantile - 1.0) * shortfall)
