"""A quantile of TTFT or of TPOT from the state of a server, learned online: predict, then learn the true time.

A recursive regression of the logarithm follows the mean, and forgets. Its recent misses in states like the present one
give the quantile, at a level that moves after each miss, so that as many times as promised lie above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, expm1, log, log1p

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KEPT_SAMPLES = 2000  # whose misses are remembered
FIRST_SAMPLES = 10  # before the regression predicts
FADING_SAMPLES = 400  # after which a miss counts e times less
LEVEL_STEP = 0.02  # a sample
LEVELS = (0.5, 0.995)
PRIOR_VARIANCE = 100.0
REFITTED_SAMPLES = 200  # the first misses are those of a regression that knew little: they are computed again
LEAST_MS = 1e-3
MOST_LOG_MS = 25.0  # a logarithm of a time that no request takes
SCORE_FADING = 0.99
MEMORIES = ((0.998, 1.0), (0.995, 0.5))  # what a sample keeps of its weight each step, and how near a like state is


@dataclass(frozen=True, slots=True)
class ReportedState:
    """The counters that a server reports, and the lengths that a request brings."""

    kv_share: float  # of the memory for keys and values that is in use, 0..1
    waiting: int  # requests
    running: int
    prompt_tokens_ahead: float  # of requests whose first token is due
    input_tokens: int
    cached_share: float = 0.0  # of the input tokens whose keys and values are there already

    @property
    def features(self) -> tuple[float, ...]:
        new = self.input_tokens * (1 - self.cached_share)
        return (
            5 * self.kv_share, log1p(self.input_tokens), log1p(new), log1p(self.waiting), log1p(self.running),
            log1p(self.prompt_tokens_ahead),
        )  # fmt: skip


@dataclass(slots=True)
class _Memory:
    """One regression and its misses, with its own speed of forgetting."""

    forgetting: float
    near: float
    quantile: float
    level: float
    coefficients: Floats
    spread: Floats
    states: list[Floats] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    misses: list[float] = field(default_factory=list)
    score: float = 0.0  # recent pinball losses of logarithms: less is better

    def predict(self, state: Floats) -> float:
        """Returns the logarithm of the quantile."""
        if len(self.logs) < FIRST_SAMPLES:
            return max(self.logs, default=0.0)
        away = ((np.array(self.states) - state) ** 2).sum(axis=1)
        age = np.arange(len(self.states), 0, -1) - 1
        weights = (np.exp(-0.5 * away / self.near**2) + 1e-9) * np.exp(-age / FADING_SAMPLES)
        misses = np.array(self.misses)
        order = np.argsort(misses)
        below = np.cumsum(weights[order])
        level = min(max(self.level, LEVELS[0]), LEVELS[1])
        place = int(np.searchsorted(below, level * below[-1]))
        return float(state @ self.coefficients + misses[order[min(place, len(order) - 1)]])

    def learn(self, state: Floats, value: float) -> None:
        predicted = self.predict(state)
        over = value - predicted
        loss = max(self.quantile * over, (self.quantile - 1) * over)
        self.score = SCORE_FADING * self.score + (1 - SCORE_FADING) * loss
        self.level += LEVEL_STEP * ((over > 0) - (1 - self.quantile))
        miss = value - float(state @ self.coefficients)
        gain = self.spread @ state
        gain /= self.forgetting + state @ gain
        self.coefficients = self.coefficients + gain * miss
        self.spread = (self.spread - np.outer(gain, state @ self.spread)) / self.forgetting
        self.states.append(state)
        self.logs.append(value)
        self.misses.append(miss)
        if FIRST_SAMPLES / 2 < len(self.logs) < REFITTED_SAMPLES:
            self.misses = list(np.array(self.logs) - np.array(self.states) @ self.coefficients)
        if len(self.logs) > KEPT_SAMPLES:
            del self.states[0], self.logs[0], self.misses[0]


class OnlineQuantile:
    """Predicts a quantile of one quantity, TTFT or TPOT, and learns from each measurement of it."""

    def __init__(self, quantile: float = 0.9) -> None:
        if not 0.5 <= quantile < 1:
            raise ValueError(f"quantile {quantile} is outside 0.5..1, without 1")
        width = 1 + len(ReportedState(0, 0, 0, 0, 0).features)
        self._memories = [
            _Memory(forgetting, near, quantile, quantile, np.zeros(width), PRIOR_VARIANCE * np.eye(width))
            for forgetting, near in MEMORIES
        ]

    def predict(self, state: ReportedState) -> float:
        """Returns the quantile in ms, by the memory that predicted better of late."""
        best = min(self._memories, key=lambda memory: memory.score)
        return max(LEAST_MS, exp(min(best.predict(_row(state)), MOST_LOG_MS)))

    def learn(self, state: ReportedState, measured_ms: float) -> None:
        """Learns the time of a request that came in this state."""
        if not 0 < measured_ms < expm1(MOST_LOG_MS):
            raise ValueError(f"measured time {measured_ms} ms is outside 0..{expm1(MOST_LOG_MS):.3g}, without the two")
        for memory in self._memories:
            memory.learn(_row(state), log(measured_ms))


def _row(state: ReportedState) -> Floats:
    return np.array((1.0, *state.features))


def followed(quantile: float, states: Sequence[ReportedState], measured_ms: Sequence[float]) -> list[float]:
    """Returns the prediction for each measurement before it was learned, in their order."""
    online = OnlineQuantile(quantile)
    found = []
    for state, value in zip(states, measured_ms, strict=True):
        found.append(online.predict(state))
        online.learn(state, value)
    return found
