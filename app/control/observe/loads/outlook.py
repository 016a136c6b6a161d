"""A service's next ten minutes as its history forecasts them, used where that was better than the plan.

Candidates with a day and a week (`solvers.forecast.contest`) state a rate that is not exceeded nine of ten times. Their
pinball loss is compared with that of the rates that were planned for. A plan is only raised to such a rate: what was
observed decides when it may fall, as before, so that steady and swinging loads change nothing more often.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from solvers.forecast import Sample
from solvers.forecast.contest import Contest

STEP_SECONDS = 600.0
STEPS_A_DAY = 144
QUANTILE = 0.9
LEARNED_STEPS = STEPS_A_DAY  # before that, nothing is raised
MUCH_BETTER = 0.95  # of the plan's loss: what is not clearly better is not used
RAISE_BAND = 0.03  # a plan is raised where it is too low by this share


def pinball(rate: float, upper: float) -> float:
    """Returns the loss of an upper rate: what was above it counts nine times as much as what was below."""
    return QUANTILE * (rate - upper) if rate > upper else (1.0 - QUANTILE) * (upper - rate)


@dataclass(slots=True)
class Outlook:
    """The history of one service in steps of ten minutes."""

    contest: Contest = field(default_factory=lambda: Contest(1, STEPS_A_DAY, QUANTILE))
    steps: int = 0
    upper: float = 0.0  # for the step that runs
    losses: tuple[float, float] = (0.0, 0.0)  # ours and the plan's, of the last two days
    _planned: float = 0.0  # when the step began
    _step: int = -1
    _seconds: float = 0.0
    _requests: float = 0.0

    def add(self, sample: Sample, planned: float) -> None:
        """Takes the newest sample, and the rate that is planned for now."""
        step = int(sample.at // STEP_SECONDS)
        if step != self._step:
            if self._seconds >= STEP_SECONDS / 2:
                self._learn(self._requests / self._seconds, planned)
            self._step, self._seconds, self._requests = step, 0.0, 0.0
        self._seconds += sample.seconds
        self._requests += sample.requests

    def _learn(self, rate: float, planned: float) -> None:
        if self.steps and self._planned > 0:
            keep = 1.0 - 1.0 / (2 * STEPS_A_DAY)
            ours, plans = self.losses
            self.losses = (keep * ours + pinball(rate, self.upper), keep * plans + pinball(rate, self._planned))
        self.upper = self.contest.observe(rate).upper
        self._planned = planned
        self.steps += 1

    def raised(self, rate: float) -> float:
        """Returns the rate to plan for: this one, or a higher one that the history is trusted to say."""
        is_trusted = self.steps >= LEARNED_STEPS and self.losses[0] < MUCH_BETTER * self.losses[1]
        return self.upper if is_trusted and self.upper > rate * (1.0 + RAISE_BAND) else rate
