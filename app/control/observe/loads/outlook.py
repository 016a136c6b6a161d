"""A service's next ten minutes and hours as its history forecasts them; the minutes are used where that beat the plan.

Candidates with a day and a week (`solvers.forecast.contest`) state a band that a rate leaves upwards one of ten times,
and downwards as often. The pinball loss of its upper edge is compared with that of the rates that were planned for. A
plan is only raised to that edge: what was observed decides when it may fall, as before, so that steady and swinging
loads change nothing more often. The hours are for people, who see on the console what is likely to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solvers.forecast import Sample
from solvers.forecast.contest import Contest, ExpectedRate, find_pinball_loss

STEP_SECONDS = 600.0
STEPS_A_DAY = 144
HOUR_SECONDS = 3600.0
HOURS_A_DAY = 24
HOURS_AHEAD = (2, 3, 4)  # from an hour that has ended to those after the one that runs
QUANTILE = 0.9
LEARNED_STEPS = STEPS_A_DAY  # before that, nothing is raised
MUCH_BETTER = 0.95  # of the plan's loss: what is not clearly better is not used
RAISE_BAND = 0.03  # a plan is raised where it is too low by this share


def pinball(rate: float, upper: float) -> float:
    """Returns the loss of an upper rate: what was above it counts nine times as much as what was below."""
    return float(find_pinball_loss(np.array(rate - upper), QUANTILE))


@dataclass(slots=True)
class EvenSteps:
    """Turns samples into mean rates of even steps."""

    step_seconds: float
    _step: int = -1
    _seconds: float = 0.0
    _requests: float = 0.0

    def add(self, sample: Sample) -> float | None:
        """Takes the newest sample; returns the rate of the step that it ends, if half of that is known."""
        step, ended = int(sample.at // self.step_seconds), None
        if step != self._step:
            if self._seconds >= self.step_seconds / 2:
                ended = self._requests / self._seconds
            self._step, self._seconds, self._requests = step, 0.0, 0.0
        self._seconds += sample.seconds
        self._requests += sample.requests
        return ended


def _hour_contests() -> tuple[Contest, ...]:
    return tuple(Contest(hours, HOURS_A_DAY, QUANTILE) for hours in HOURS_AHEAD)


@dataclass(frozen=True, slots=True)
class RateBand:
    """The band for the step that runs; once for each step whether the last one held, once an hour the next hours."""

    lower: float
    upper: float
    has_held: bool | None = None  # None: there was none, or it was answered before
    hours: Sequence[ExpectedRate] = ()  # those after the hour that runs, once


@dataclass(slots=True)
class Outlook:
    """The history of one service in steps of ten minutes, and in hours."""

    contest: Contest = field(default_factory=lambda: Contest(1, STEPS_A_DAY, QUANTILE))
    hour_contests: tuple[Contest, ...] = field(default_factory=_hour_contests)
    steps: int = 0
    upper: float = 0.0  # for the step that runs
    lower: float = 0.0
    losses: tuple[float, float] = (0.0, 0.0)  # ours and the plan's, of the last two days
    _planned: float = 0.0  # when the step began
    _minutes: EvenSteps = field(default_factory=lambda: EvenSteps(STEP_SECONDS))
    _hours: EvenSteps = field(default_factory=lambda: EvenSteps(HOUR_SECONDS))

    def add(self, sample: Sample, planned: float) -> RateBand | None:
        """Takes the newest sample, and the rate that is planned for now; returns the band of its step."""
        rate, hour = self._minutes.add(sample), self._hours.add(sample)
        has_held = self._learn(rate, planned) if rate is not None else None
        hours = [] if hour is None else [contest.observe(hour) for contest in self.hour_contests]
        return RateBand(self.lower, self.upper, has_held, hours) if self.steps else None

    def _learn(self, rate: float, planned: float) -> bool | None:
        """Takes the rate of a step, and forecasts the next one; returns whether the rate lay in its band."""
        has_held = self.lower <= rate <= self.upper if self.steps else None
        if self.steps and self._planned > 0:
            keep = 1.0 - 1.0 / (2 * STEPS_A_DAY)
            ours, plans = self.losses
            self.losses = (keep * ours + pinball(rate, self.upper), keep * plans + pinball(rate, self._planned))
        expected = self.contest.observe(rate)
        self.lower, self.upper = expected.lower, expected.upper
        self._planned = planned
        self.steps += 1
        return has_held

    def raised(self, rate: float) -> float:
        """Returns the rate to plan for: this one, or a higher one that the history is trusted to say."""
        is_trusted = self.steps >= LEARNED_STEPS and self.losses[0] < MUCH_BETTER * self.losses[1]
        return self.upper if is_trusted and self.upper > rate * (1.0 + RAISE_BAND) else rate
