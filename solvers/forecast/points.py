"""Candidates for the rate some steps ahead: each states by how much the level rises until then, in logarithms."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.forecast.levels import Levels

Floats: TypeAlias = NDArray[np.float64]

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
