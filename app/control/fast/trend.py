"""Reads from the last seconds where a load stands by now, and how fast it rises, if chance does not explain that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from app.control.fast.tuning import TUNING

Readings = Sequence[tuple[float, float]]  # times, and rates of the second before each


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """The rate that the load surely has by now, by how much it grows a second, and for how long it has."""

    level: float = 0.0
    slope: float = 0.0
    lasted_seconds: float = 0.0


def fit_trend(readings: Readings, noise: float) -> LoadTrend:
    """Returns the trend of these readings, which must not overlap; `noise` is the relative variance of one.

    Only what came since the rise began counts. A load that jumped once and stays does not rise: where a step explains
    the readings as well as a line, it has a new level and no slope.
    """
    least = min((rate for _, rate in readings), default=0.0)
    first = max((at for at, (_, rate) in enumerate(readings) if rate <= least * (1 + TUNING.rise_share)), default=-1)
    risen = readings[first + 1 :]
    if not risen:
        return LoadTrend()
    start, by_step = _fit_step(risen, noise)
    stays = risen[start:]
    level = _mean(stays) * (max(0.0, 1 - sqrt(noise)) if len(stays) == 1 else 1.0)  # a single one may be chance
    middle, slope, by_line = _fit_line(risen)
    count, now = len(risen), readings[-1][0]
    if count < TUNING.trend_readings or by_step * (count - 2) <= by_line * (count - 3):  # a step has more freedom
        return LoadTrend(level)
    error = sqrt(by_line / (count - 2) / sum((at - middle) ** 2 for at, _ in risen))
    lasted = now - readings[first][0]
    is_chance = slope <= (TUNING.trend_errors + TUNING.few_readings_errors / (count - 2)) * error
    if is_chance or slope * lasted <= TUNING.slack_share * least:  # so much is left to the cycle
        return LoadTrend(level)
    return LoadTrend(_mean(risen) + slope * (now - middle), slope, lasted)


def _fit_step(readings: Readings, noise: float) -> tuple[int, float]:
    """Returns since which reading they stay on one level, as far as chance allows, and the squares that a step leaves.

    The step that fits best would leave out readings for no more than their noise.
    """
    squares = [_squares(readings[:at]) + _squares(readings[at:]) for at in range(len(readings))]
    best = min(squares)
    chance = TUNING.step_variances * noise * _mean(readings) ** 2
    return next(at for at, left in enumerate(squares) if left <= best + chance), best


def _fit_line(readings: Readings) -> tuple[float, float, float]:
    """Returns the middle of the times, the slope, and the squares that a line leaves."""
    middle, mean = sum(at for at, _ in readings) / len(readings), _mean(readings)
    spread = sum((at - middle) ** 2 for at, _ in readings)
    if spread <= 0:
        return middle, 0.0, inf
    slope = sum((at - middle) * (rate - mean) for at, rate in readings) / spread
    return middle, slope, sum((rate - mean - slope * (at - middle)) ** 2 for at, rate in readings)


def _mean(readings: Readings) -> float:
    return sum(rate for _, rate in readings) / len(readings)


def _squares(readings: Readings) -> float:
    mean = _mean(readings) if readings else 0.0
    return sum((rate - mean) ** 2 for _, rate in readings)
